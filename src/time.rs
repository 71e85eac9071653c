//! Time as data. Pure code receives a [`Timestamp`]; only the driver owns a clock.

use std::fmt;

/// Milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_millis(ms: i64) -> Self {
        Timestamp(ms)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Saturating: a deadline far in the future stays in the future.
    pub const fn plus(self, ms: i64) -> Self {
        Timestamp(self.0.saturating_add(ms))
    }

    pub const fn minus(self, ms: i64) -> Self {
        Timestamp(self.0.saturating_sub(ms))
    }

    /// Milliseconds from `earlier` to `self`; negative when `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Accepts RFC 3339 with a zone, and a bare date as UTC midnight. A date with a time but no zone means different
    /// instants on different machines, so it is not a date here. The end of the year 9999, which many write for "never",
    /// is the last instant that can be written.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > 64 || !text.is_ascii() {
            return None;
        }
        let at = match text.parse::<jiff::Timestamp>() {
            Ok(at) => at,
            Err(_) if text.len() == 10 => return Timestamp::parse(&format!("{text}T00:00:00Z")),
            Err(_) if is_never(text) => jiff::Timestamp::MAX,
            Err(_) => return None,
        };
        Some(Timestamp(at.as_millisecond()))
    }

    /// Start of the fixed one-minute window that holds this instant, as a minute number.
    pub const fn minute(self) -> i64 {
        self.0.div_euclid(60_000)
    }

    /// The day of UTC that holds this instant, as a day number.
    pub const fn day(self) -> i64 {
        self.0.div_euclid(86_400_000)
    }

    /// Whole seconds until the next day of UTC, at least one.
    pub const fn seconds_to_next_day(self) -> u64 {
        let left = 86_400_000 - self.0.rem_euclid(86_400_000);
        ((left + 999) / 1000).cast_unsigned()
    }

    /// Whole seconds until the next minute window, at least one: what a `Retry-After` says.
    pub const fn seconds_to_next_minute(self) -> u64 {
        let left = 60_000 - self.0.rem_euclid(60_000);
        let seconds = (left + 999) / 1000;
        if seconds < 1 { 1 } else { seconds as u64 }
    }
}

impl fmt::Display for Timestamp {
    /// ISO 8601 with milliseconds and `Z`, as JavaScript's `toISOString`. What is later than can be written is written as
    /// the last instant that can, and so is what is earlier: everything that is written can be read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        write!(f, "{:.3}", jiff::Timestamp::from_millisecond(self.0).unwrap_or(end))
    }
}

/// An instant with a zone in the last days of the year 9999, past what the calendar here reaches.
fn is_never(text: &str) -> bool {
    let Ok(pieces) = jiff::fmt::temporal::Pieces::parse(text) else { return false };
    let whole = pieces.time().is_some() && pieces.to_numeric_offset().is_some();
    whole && pieces.date() >= jiff::civil::date(9999, 12, 30)
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        Timestamp::parse(&text).ok_or_else(|| serde::de::Error::custom("not an ISO 8601 instant with a zone"))
    }
}

/// Where the driver reads the time. Pure code never sees one.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// A clock that only moves when told to; for tests and the simulator.
#[derive(Debug, Default)]
pub struct ManualClock(std::sync::atomic::AtomicI64);

impl ManualClock {
    pub fn at(start: Timestamp) -> Self {
        ManualClock(std::sync::atomic::AtomicI64::new(start.0))
    }

    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_like_javascript() {
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp::from_millis(1_788_000_000_001).to_string(), "2026-08-29T10:40:00.001Z");
    }

    #[test]
    fn parses_instants_and_refuses_local_times() {
        let at = |t: &str| Timestamp::parse(t).map(|t| t.to_string());
        assert_eq!(at("2026-09-15").as_deref(), Some("2026-09-15T00:00:00.000Z"));
        assert_eq!(at("2026-09-15T01:02:03+01:00").as_deref(), Some("2026-09-15T00:02:03.000Z"));
        assert_eq!(at("2026-09-15T01:02:03.004Z").as_deref(), Some("2026-09-15T01:02:03.004Z"));
        for bad in ["", "2026-09-15T01:02:03", "tomorrow", "2026-13-01", "NaN", "2026-09-15T01:02", "1788000000"] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }

    /// Somebody else's card or mandate that never ends is no malformed one.
    #[test]
    fn never_can_be_read_and_what_is_written_always() {
        let last = "9999-12-30T22:00:00.999Z";
        for never in
            ["9999-12-31", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59-12:00", last]
        {
            assert_eq!(Timestamp::parse(never).map(|at| at.to_string()).as_deref(), Some(last), "{never}");
        }
        for bad in ["9999-12-31T23:59:59", "9999-12-32T00:00:00Z", "10000-01-01T00:00:00Z", "9999-12-31T25:00:00Z"] {
            assert_eq!(Timestamp::parse(bad), None, "{bad}");
        }
        for ms in [i64::MAX, i64::MIN, 253_402_207_200_999 + 1] {
            let written = Timestamp::from_millis(ms).to_string();
            assert!(Timestamp::parse(&written).is_some(), "{written}");
        }
    }

    #[test]
    fn retry_after_is_never_zero() {
        assert_eq!(Timestamp::from_millis(59_999).seconds_to_next_minute(), 1);
        assert_eq!(Timestamp::from_millis(60_000).seconds_to_next_minute(), 60);
    }
}
