//! All chance of a run, drawn from its one seed.

/// SplitMix64: small, quick, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn of(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Zero for a bound of zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// `low..=high`.
    pub fn span(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low).unsigned_abs() + 1) as i64
    }

    pub fn per_mille(&mut self, of: u64) -> bool {
        of > 0 && self.below(1_000) < of
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len() as u64) as usize)
    }

    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.draw().to_be_bytes()));
        bytes
    }
}

/// How often what goes wrong in this run, in thousandths. Each is drawn from never, seldom and often, so that rare
/// combinations come about, and so that some runs have one kind of trouble alone.
#[derive(Clone, Debug)]
pub struct Swarm {
    pub lost: u64,
    pub doubled: u64,
    pub slow: u64,
    pub replayed: u64,
    pub crash_before: u64,
    pub crash_after: u64,
    pub unknown: u64,
    pub full: u64,
    pub crash: u64,
    pub jump: u64,
    pub partition: u64,
    pub restore: u64,
    pub hostile: u64,
    pub through_queue: u64,
    pub revoke: u64,
}

impl Swarm {
    pub fn draw(chance: &mut Chance) -> Swarm {
        let mut of = |seldom: u64, often: u64| match chance.below(3) {
            0 => 0,
            1 => seldom,
            _ => often,
        };
        Swarm {
            lost: of(20, 200),
            doubled: of(20, 150),
            slow: of(30, 300),
            replayed: of(10, 60),
            crash_before: of(3, 25),
            crash_after: of(3, 25),
            unknown: of(3, 25),
            full: of(3, 25),
            crash: of(2, 10),
            jump: of(4, 25),
            partition: of(2, 10),
            restore: of(1, 5),
            hostile: of(150, 450),
            through_queue: of(150, 400),
            revoke: of(1, 4),
        }
    }

    /// Nothing goes wrong any more.
    pub fn healed() -> Swarm {
        Swarm {
            lost: 0,
            doubled: 0,
            slow: 0,
            replayed: 0,
            crash_before: 0,
            crash_after: 0,
            unknown: 0,
            full: 0,
            crash: 0,
            jump: 0,
            partition: 0,
            restore: 0,
            hostile: 0,
            through_queue: 0,
            revoke: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_one_course() {
        let course = |seed| (0..32).scan(Chance::of(seed), |c, _| Some(c.draw())).collect::<Vec<_>>();
        assert_eq!(course(7), course(7));
        assert_ne!(course(7), course(8));
        let mut chance = Chance::of(1);
        assert!((0..1_000).all(|_| (-3..=4).contains(&chance.span(-3, 4))));
        assert_eq!((chance.below(0), chance.pick::<u8>(&[])), (0, None));
    }
}
