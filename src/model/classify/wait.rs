//! How long a provider asks to wait: headers, fields and words, all in milliseconds.

use crate::model::codec::Head;

/// `retry-after-ms`, else `retry-after` in seconds or as a date. A date is measured against the answer's own `date`: no clock.
pub(super) fn of_headers(head: &Head) -> Option<u64> {
    if let Some(ms) = head.header("retry-after-ms").and_then(|text| millis(text, 1)) {
        return Some(ms);
    }
    let text = head.header("retry-after")?.trim();
    if let Some(ms) = millis(text, 1_000) {
        return Some(ms);
    }
    let then = http_date(text)?;
    let now = http_date(head.header("date")?)?;
    Some(u64::try_from(then.saturating_sub(now)).unwrap_or(0).saturating_mul(1_000))
}

/// The span behind `try again in`, `retry in` or `retry after`.
pub(super) fn of_text(text: &str) -> Option<u64> {
    ["try again in ", "retry in ", "retry after "].iter().find_map(|phrase| {
        let at = text.find(phrase)? + phrase.len();
        span(text.get(at..)?)
    })
}

/// `23s`, `1m2.5s`, `6m0s`, `350ms`, `20 seconds` at the beginning of a text.
pub(super) fn span(text: &str) -> Option<u64> {
    let mut rest = text.trim_start();
    let mut total = 0u64;
    let mut any = false;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let after = after.strip_prefix(' ').unwrap_or(after);
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let scale = match unit {
            "ms" | "milliseconds" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hour" | "hours" => 3_600_000,
            _ => break,
        };
        let Some(ms) = millis(number, scale) else { break };
        total = total.saturating_add(ms);
        any = true;
        rest = next;
    }
    any.then_some(total)
}

/// A decimal number of units of `scale` milliseconds; what is below a millisecond is dropped.
fn millis(text: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    if !fraction.bytes().all(|b| b.is_ascii_digit()) || !whole.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut ms = whole.parse::<u64>().ok()?.saturating_mul(scale);
    let mut unit = scale;
    for digit in fraction.bytes() {
        unit /= 10;
        ms = ms.saturating_add(u64::from(digit - b'0') * unit);
    }
    Some(ms)
}

/// Seconds since the epoch of `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.trim().split_once(", ")?.1.split(' ');
    let day: i64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = MONTHS.iter().position(|m| *m == name)? as i64 + 1;
    let year: i64 = words.next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<i64>().ok().filter(|n| (0..=60).contains(n)));
    let (hours, minutes, seconds) = (clock.next()??, clock.next()??, clock.next()??);
    // Days since the epoch with years that begin in March, so that the leap day is the last of its year.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719_468;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_servers_write_them() {
        let table = [
            ("23s", Some(23_000)),
            ("1m2.5s", Some(62_500)),
            ("6m0s", Some(360_000)),
            ("350ms", Some(350)),
            ("1.2s. Visit", Some(1_200)),
            ("20 seconds", Some(20_000)),
            ("20s.", Some(20_000)),
            ("1h", Some(3_600_000)),
            ("soon", None),
            ("12", None),
            ("", None),
            ("1.2.3s", None),
        ];
        for (text, ms) in table {
            assert_eq!(span(text), ms, "{text}");
        }
        assert_eq!(of_text("rate limit reached. please try again in 7m12s."), Some(432_000));
    }

    #[test]
    fn dates_become_seconds() {
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http_date("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        for bad in ["", "tomorrow", "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:99:37 GMT", "Sun, 06 Nov 99999 08:49:37 GMT"]
        {
            assert_eq!(http_date(bad), None, "{bad}");
        }
    }

    // PV-46
    #[test]
    fn headers_say_how_long() {
        let head = |fields: &[(&str, &str)]| Head {
            status: 429,
            headers: fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        };
        type Fields<'a> = &'a [(&'a str, &'a str)];
        let table: [(Fields<'_>, Option<u64>); 7] = [
            (&[("retry-after", "2")], Some(2_000)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after", "30"), ("retry-after-ms", "150")], Some(150)),
            (&[("date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], Some(30_000)),
            (&[("date", "Sun, 06 Nov 1994 08:49:37 GMT"), ("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")], Some(0)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")], None),
            (&[("retry-after", "-3")], None),
        ];
        for (fields, ms) in table {
            assert_eq!(of_headers(&head(fields)), ms, "{fields:?}");
        }
    }
}
