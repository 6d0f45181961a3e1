//! Arithmetic for a model: + - * / % ^, parentheses, signs, decimals. A fault is told to the model, with the place where it is.

use serde_json::Number;

/// Characters of an expression. A longer one is no arithmetic.
const LENGTH: usize = 1_000;
/// Levels of parentheses, signs and powers inside each other. The parser recurses, and a wasm stack does not grow.
const DEPTH: usize = 64;

/// The value of `expression`; an integer where it is one.
///
/// # Errors
/// What is wrong and where, counted in characters from 1.
pub(super) fn evaluate(expression: &str) -> Result<Number, String> {
    let characters: Vec<char> = expression.chars().collect();
    if characters.len() > LENGTH {
        return Err(format!("the expression has {} characters, limit {LENGTH}", characters.len()));
    }
    let mut parser = Parser { characters, at: 0, depth: 0 };
    let value = parser.sum()?;
    match parser.peek() {
        None => number(value),
        Some(_) => Err(parser.unexpected()),
    }
}

fn number(value: f64) -> Result<Number, String> {
    if value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0 {
        return Ok((value as i64).into());
    }
    Number::from_f64(rounded(value)).ok_or_else(|| "the result is too large to represent".into())
}

/// Fifteen digits, which a double carries; those after them are noise (0.1 + 0.2 is 0.3). By arithmetic, because formatting would
/// bring tables into the worker; only where the power of ten is exact.
fn rounded(value: f64) -> f64 {
    let size = value.abs();
    if !(1e-7..1e15).contains(&size) {
        return value;
    }
    let mut scale = 1.0;
    while size * scale < 1e14 {
        scale *= 10.0;
    }
    (value * scale).round() / scale
}

/// A number as people write it: `.5`, `1.`, `007` are numbers too. Read by the JSON reader, which the worker has anyway.
fn literal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, "0"), |(m, e)| (m, e));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Integers are exact; the JSON reader's floating point may be off in the sixteenth digit.
    if fraction.is_empty()
        && exponent == "0"
        && let Ok(integer) = whole.parse::<u64>()
    {
        return Some(integer as f64);
    }
    let whole = whole.trim_start_matches('0');
    let or_zero = |digits: &str| if digits.is_empty() { "0".to_owned() } else { digits.to_owned() };
    serde_json::from_str(&format!("{}.{}e{exponent}", or_zero(whole), or_zero(fraction))).ok()
}

struct Parser {
    characters: Vec<char>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.take(&['+']) {
                value += self.product()?;
            } else if self.take(&['-', '−']) {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.signed()?;
        loop {
            let divisor_at = self.at;
            if self.take(&['*', '×', '·']) {
                value *= self.signed()?;
            } else if self.take(&['/', '÷']) {
                value /= self.divisor(divisor_at)?;
            } else if self.take(&['%']) {
                value %= self.divisor(divisor_at)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn divisor(&mut self, operator_at: usize) -> Result<f64, String> {
        let value = self.signed()?;
        if value == 0.0 { Err(format!("division by zero after character {}", operator_at + 1)) } else { Ok(value) }
    }

    /// A sign binds weaker than a power: -2^2 is -4, and 2^-1 is a half.
    fn signed(&mut self) -> Result<f64, String> {
        self.deeper(|parser| {
            if parser.take(&['-', '−']) {
                Ok(-parser.signed()?)
            } else if parser.take(&['+']) {
                parser.signed()
            } else {
                parser.power()
            }
        })
    }

    /// Powers are taken from the right: 2^3^2 is 2^9.
    fn power(&mut self) -> Result<f64, String> {
        let base = self.atom()?;
        if !self.take(&['^']) {
            return Ok(base);
        }
        let value = base.powf(self.signed()?);
        if value.is_nan() { Err(format!("a power before character {} is not a real number", self.at + 1)) } else { Ok(value) }
    }

    fn atom(&mut self) -> Result<f64, String> {
        if self.take(&['(']) {
            let value = self.deeper(Self::sum)?;
            return if self.take(&[')']) { Ok(value) } else { Err(self.unexpected()) };
        }
        let Some(first) = self.peek().filter(|c| c.is_ascii_digit() || *c == '.') else { return Err(self.unexpected()) };
        let start = self.at;
        let mut text = String::from(first);
        self.at += 1;
        while let Some(c) = self.characters.get(self.at).copied() {
            // 1e-9: a sign belongs to the number only right after its exponent mark.
            let exponent_sign = matches!(c, '+' | '-') && text.ends_with(['e', 'E']);
            if !(c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E') || exponent_sign) {
                break;
            }
            text.push(c);
            self.at += 1;
        }
        literal(&text).ok_or_else(|| format!("`{text}` at character {} is not a number", start + 1))
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth == DEPTH {
            return Err(format!("more than {DEPTH} levels at character {}", self.at + 1));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// The next character that is no blank; the position is then there.
    fn peek(&mut self) -> Option<char> {
        while let Some(c) = self.characters.get(self.at).copied() {
            if !c.is_whitespace() {
                return Some(c);
            }
            self.at += 1;
        }
        None
    }

    /// Takes the next character if it is one of `operators`. `**` is a way to write `^`.
    fn take(&mut self, operators: &[char]) -> bool {
        let Some(next) = self.peek() else { return false };
        let doubled = next == '*' && self.characters.get(self.at + 1) == Some(&'*');
        let (operator, length) = if doubled { ('^', 2) } else { (next, 1) };
        let found = operators.contains(&operator);
        if found {
            self.at += length;
        }
        found
    }

    fn unexpected(&mut self) -> String {
        match self.peek() {
            Some(c) => format!("unexpected `{c}` at character {}", self.at + 1),
            None => "the expression ends too early".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_that_of_school() {
        for (expression, expected) in [
            ("1+2*3", "7"),
            ("(1 + 2) * 3.5", "10.5"),
            ("2^3^2", "512"),
            ("2**10", "1024"),
            ("-2^2", "-4"),
            ("2^-1", "0.5"),
            ("(-2)^2", "4"),
            ("--3", "3"),
            ("10 % 4", "2"),
            ("-7 % 3", "-1"),
            ("7 / 2 / 2", "1.75"),
            ("8 - 3 - 2", "3"),
            ("0.1 + 0.2", "0.3"),
            (".5 + 1.", "1.5"),
            ("007 + 0.50", "7.5"),
            ("1e-20 * 2", "2e-20"),
            ("0.000002 / 3", "6.66666666666667e-7"),
            ("123456.7 * 10", "1234567"),
            ("1e3 + 2E-1", "1000.2"),
            ("6 × 7 ÷ 2 − 1", "20"),
            ("9007199254740991", "9007199254740991"),
            ("1/3", "0.333333333333333"),
            ("2^100", "1.2676506002282294e+30"),
            ("0 * -1", "0"),
        ] {
            assert_eq!(evaluate(expression).map(|n| n.to_string()).as_deref(), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn faults_say_where_they_are() {
        for (expression, expected) in [
            ("", "the expression ends too early"),
            ("  ", "the expression ends too early"),
            ("1 +", "the expression ends too early"),
            ("(1", "the expression ends too early"),
            ("1)", "unexpected `)` at character 2"),
            ("2 x 3", "unexpected `x` at character 3"),
            ("1 2", "unexpected `2` at character 3"),
            ("1.2.3", "`1.2.3` at character 1 is not a number"),
            ("5 / (2 - 2)", "division by zero after character 3"),
            ("5 % 0", "division by zero after character 3"),
            ("10^400", "the result is too large to represent"),
            ("(0-8)^0.5", "a power before character 10 is not a real number"),
        ] {
            assert_eq!(evaluate(expression), Err(expected.to_owned()), "{expression}");
        }
    }

    #[test]
    fn nesting_and_length_are_bounded() {
        let nested = |n: usize| format!("{}1{}", "(".repeat(n), ")".repeat(n));
        assert!(evaluate(&nested(20)).is_ok());
        assert!(evaluate(&nested(400)).is_err_and(|e| e.contains("levels")));
        assert!(evaluate(&format!("{}1", "-".repeat(900))).is_err_and(|e| e.contains("levels")));
        assert!(evaluate(&"1+".repeat(501)).is_err_and(|e| e.contains("limit 1000")));
    }
}
