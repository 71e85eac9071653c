//! Sets of code points, and sets of which some members are in doubt.
//!
//! Promises sorted, disjoint, non-adjacent ranges after every operation, so equal sets are equal values. A `Set` brackets
//! what a class may match: `sure` are members under every Unicode version in use, `maybe` under at least one.
//! Deliberately absent: any knowledge of Unicode.

/// Inclusive ranges, sorted, disjoint, never touching.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ranges(Vec<(u32, u32)>);

/// `sure` is a part of `maybe`. With `unsettled`, every code point outside the settled repertoire may be a member too: the
/// ranges need not spell out hundreds of gaps.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Set {
    pub sure: Ranges,
    pub maybe: Ranges,
    pub unsettled: bool,
}

impl Ranges {
    pub fn new(mut pairs: Vec<(u32, u32)>) -> Ranges {
        pairs.retain(|&(first, last)| first <= last);
        pairs.sort_unstable();
        let mut out: Vec<(u32, u32)> = Vec::with_capacity(pairs.len());
        for (first, last) in pairs {
            match out.last_mut() {
                Some(open) if first <= open.1.saturating_add(1) => open.1 = open.1.max(last),
                _ => out.push((first, last)),
            }
        }
        Ranges(out)
    }

    pub fn one(point: u32) -> Ranges {
        Ranges(vec![(point, point)])
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn last_point(&self) -> Option<u32> {
        self.0.last().map(|range| range.1)
    }

    pub fn contains(&self, point: u32) -> bool {
        let after = self.0.partition_point(|range| range.0 <= point);
        after > 0 && self.0.get(after - 1).is_some_and(|range| point <= range.1)
    }

    pub fn union(&self, other: &Ranges) -> Ranges {
        let mut pairs = self.0.clone();
        pairs.extend_from_slice(&other.0);
        Ranges::new(pairs)
    }

    pub fn intersect(&self, other: &Ranges) -> Ranges {
        let (mut out, mut here, mut there) = (Vec::new(), 0, 0);
        while let (Some(&(a, b)), Some(&(c, d))) = (self.0.get(here), other.0.get(there)) {
            let (first, last) = (a.max(c), b.min(d));
            if first <= last {
                out.push((first, last));
            }
            if b < d {
                here += 1;
            } else {
                there += 1;
            }
        }
        Ranges(out)
    }

    /// Everything from 0 to `top` that is not here.
    pub fn complement(&self, top: u32) -> Ranges {
        let (mut out, mut next) = (Vec::with_capacity(self.0.len() + 1), 0u32);
        for &(first, last) in &self.0 {
            if first > top {
                break;
            }
            if first > next {
                out.push((next, first - 1));
            }
            next = last.saturating_add(1);
        }
        if next <= top {
            out.push((next, top));
        }
        Ranges(out)
    }

    pub fn minus(&self, other: &Ranges) -> Ranges {
        self.intersect(&other.complement(u32::MAX))
    }
}

impl Set {
    pub fn certain(ranges: Ranges) -> Set {
        Set { sure: ranges.clone(), maybe: ranges, unsettled: false }
    }

    pub fn union(&self, other: &Set) -> Set {
        Set {
            sure: self.sure.union(&other.sure),
            maybe: self.maybe.union(&other.maybe),
            unsettled: self.unsettled || other.unsettled,
        }
    }

    /// `settled` is asked for only if the set has doubts about what lies outside it.
    pub fn complement(&self, top: u32, settled: impl FnOnce() -> &'static Ranges) -> Set {
        let sure = self.maybe.complement(top);
        let sure = if self.unsettled { sure.intersect(settled()) } else { sure };
        Set { sure, maybe: self.sure.complement(top), unsettled: self.unsettled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = Ranges> {
        prop::collection::vec((0u32..60, 0u32..9), 0..8)
            .prop_map(|pairs| Ranges::new(pairs.into_iter().map(|(at, len)| (at, at + len)).collect()))
    }

    proptest! {
        #[test]
        fn operations_agree_with_membership(a in ranges(), b in ranges()) {
            let (both, any, not, less) = (a.intersect(&b), a.union(&b), a.complement(70), a.minus(&b));
            for point in 0..=70 {
                let (x, y) = (a.contains(point), b.contains(point));
                prop_assert_eq!(both.contains(point), x && y);
                prop_assert_eq!(any.contains(point), x || y);
                prop_assert_eq!(not.contains(point), !x);
                prop_assert_eq!(less.contains(point), x && !y);
            }
            prop_assert_eq!(not.complement(70), a);
        }
    }

    #[test]
    fn touching_ranges_become_one() {
        assert_eq!(Ranges::new(vec![(5, 9), (0, 4)]), Ranges::new(vec![(0, 9)]));
        assert_eq!(Ranges::new(vec![(3, 2)]), Ranges::default());
    }
}
