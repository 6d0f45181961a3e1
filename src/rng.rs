//! The engine's source of ids: seeded once per incarnation by the platform, counted from there, so that a run can be repeated.

/// A seeded generator. Its ids are unique, not secret: nothing is authorised by knowing one.
#[derive(Debug)]
pub struct Rng(fastrand::Rng);

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl Rng {
    /// A generator that continues from `seed`.
    pub fn new(seed: [u8; 32]) -> Self {
        // The generator holds 64 bits: fold the entropy rather than drop three quarters of it.
        let folded = seed.chunks(8).fold(0u64, |acc, chunk| {
            let word = chunk.iter().fold(0u64, |w, b| (w << 8) | u64::from(*b));
            acc.rotate_left(17) ^ word
        });
        Self(fastrand::Rng::with_seed(folded))
    }

    /// `n` letters and digits.
    pub fn text(&mut self, n: usize) -> String {
        (0..n).map(|_| ALPHABET.get(self.0.usize(..62)).copied().unwrap_or(b'0') as char).collect()
    }

    /// A number below `bound` (0 if `bound` is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.u64(..bound) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids_and_another_seed_others() {
        let mut a = Rng::new([7; 32]);
        let mut b = Rng::new([7; 32]);
        let mut c = Rng::new([8; 32]);
        let (x, y, z) = (a.text(16), b.text(16), c.text(16));
        assert_eq!(x, y);
        assert_ne!(x, z);
        assert_ne!(x, a.text(16));
    }
}
