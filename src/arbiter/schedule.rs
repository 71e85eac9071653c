//! When an undecided contract is looked at again: from seconds to an hour, each wait about twice the last, jittered so
//! that contracts which failed together do not come back together.

use crate::ids::Ids;
use crate::limits::{LOOK_BACKOFF_BASE_MS, LOOK_BACKOFF_MAX_MS};
use crate::time::Timestamp;

/// `attempts` undecided looks in a row, the one just made included.
pub fn next_look(now: Timestamp, attempts: u32, ids: &mut Ids) -> Timestamp {
    let doubled = LOOK_BACKOFF_BASE_MS.saturating_mul(1i64 << attempts.saturating_sub(1).min(20));
    let wait = doubled.min(LOOK_BACKOFF_MAX_MS);
    // 80 % to 120 % of the wait, never beyond the longest.
    let jittered = wait * (800 + i64::from(ids.per_mille()) * 2 / 5) / 1000;
    now.plus(jittered.min(LOOK_BACKOFF_MAX_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_stay_within_an_hour() {
        let now = Timestamp::from_millis(0);
        let mut ids = Ids::from_seed([1; 32]);
        let mut last = 0;
        for attempts in 1..=8 {
            let wait = next_look(now, attempts, &mut ids).millis();
            let plain = LOOK_BACKOFF_BASE_MS << (attempts - 1);
            assert!((plain * 8 / 10..=plain * 12 / 10).contains(&wait), "{attempts}: {wait}");
            assert!(wait > last);
            last = wait;
        }
        for attempts in [20, 1000, u32::MAX] {
            assert!(next_look(now, attempts, &mut ids).millis() <= LOOK_BACKOFF_MAX_MS);
            assert!(next_look(now, attempts, &mut ids).millis() >= LOOK_BACKOFF_MAX_MS * 8 / 10);
        }
    }
}
