//! A small seeded generator of random numbers (SplitMix64). A seed gives the same run permanently, while a
//! library's generator may change with its version.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number less than `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// One of `from`, with a probability in proportion to its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, from: &[(usize, T)]) -> T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for &(weight, what) in from {
            match at.checked_sub(weight) {
                Some(rest) => at = rest,
                None => return what,
            }
        }
        unreachable!("the weights were summed")
    }

    /// A random selection of `from`: each item with a probability of two thirds.
    pub(crate) fn some<T: Clone>(&mut self, from: &[T]) -> Vec<T> {
        from.iter().filter(|_| !self.one_in(3)).cloned().collect()
    }
}
