//! Refusals are data: the rules said no. Errors of the environment (disk, network, bug) are other types.
//!
//! The numbers are public and never reused. A peer sees the protocol's code, a reason in words and, beside them, the
//! number; a script sees the exit code. Nothing else in the crate maps one to the other.

use std::fmt;

macro_rules! refusals {
    ($( $(#[$doc:meta])* $name:ident = $number:literal => $code:literal ),+ $(,)?) => {
        /// Why a rule said no. Closed; the discriminant is the stable public number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Rule { $( $(#[$doc])* $name = $number ),+ }

        impl Rule {
            pub const ALL: &'static [Rule] = &[ $( Rule::$name ),+ ];

            /// The protocol's code, which is also the HTTP status.
            pub const fn code(self) -> u16 {
                match self { $( Rule::$name => $code ),+ }
            }
        }
    };
}

refusals! {
    // shape of a request or document
    NotJson = 100 => 400,
    NotAnObject = 101 => 400,
    TooDeep = 102 => 400,
    UnsafeNumber = 103 => 400,
    BadField = 104 => 400,
    BadParameter = 105 => 400,
    BadAddress = 106 => 400,
    BadEnvelope = 107 => 400,
    BadDocument = 108 => 400,
    BodyTooLarge = 109 => 413,
    BodyTruncated = 110 => 400,
    BodyTooSlow = 111 => 408,
    UnsupportedMedia = 112 => 415,
    UnknownRoute = 113 => 404,
    HeadTooLarge = 114 => 431,
    WrongMethod = 115 => 405,

    // who is asking
    Unauthenticated = 200 => 401,
    NotYours = 201 => 403,
    NotThisSender = 202 => 403,
    BadSignature = 203 => 403,
    SenderUnknown = 204 => 403,
    SenderEnded = 205 => 403,
    OutOfScope = 206 => 403,
    BadRelay = 207 => 403,
    PossessionNotProved = 208 => 401,

    // mail
    EnvelopeExpired = 300 => 410,
    NoSuchAgent = 301 => 404,
    NoRecipientHere = 302 => 404,
    Blocked = 303 => 403,
    NotListed = 304 => 403,
    ProofOfWorkMissing = 305 => 402,
    StampMissing = 306 => 402,
    UnknownPolicy = 307 => 403,
    MustBeSealed = 308 => 403,
    IdReused = 309 => 409,
    RateLimited = 310 => 429,
    SenderUnreachable = 311 => 421,
    NotOfferedHere = 312 => 403,
    NotYet = 313 => 421,
    NoSuchBlob = 314 => 404,
    BlobTaken = 315 => 409,
    AllowanceSpent = 316 => 429,
    CursorGone = 317 => 410,
    HouseNotVerified = 318 => 422,
    IndexFull = 319 => 507,

    // registration
    NameInvalid = 400 => 400,
    NameTaken = 401 => 409,
    NameReserved = 402 => 409,
    NameTooShort = 403 => 409,
    RegistrationClosed = 404 => 403,
    InvitationInvalid = 405 => 403,
    BadProfile = 406 => 400,
    NoSuchDelegation = 407 => 404,
    NoAdminLeft = 408 => 409,

    // ledger
    UnknownOperation = 500 => 400,
    BadAmount = 501 => 400,
    NotEnough = 502 => 402,
    NoSuchContract = 503 => 404,
    NotAParty = 504 => 403,
    WrongState = 505 => 409,
    WrongKind = 506 => 409,
    QuoteExpired = 507 => 410,
    QuoteUsed = 508 => 409,
    QuoteForAnother = 509 => 403,
    WrongHouse = 510 => 400,
    BadQuote = 511 => 400,
    BadQuoteSignature = 512 => 403,
    CapExceeded = 513 => 403,
    BadTests = 514 => 400,
    BadReferrer = 515 => 400,
    CannotPayTo = 516 => 400,
    PayeeUnknown = 517 => 404,
    TooEarly = 518 => 409,
    NoDeadline = 519 => 409,
    Overflow = 520 => 400,
    NoSuchMandate = 521 => 404,
    MandateExpired = 522 => 410,
    NoEvidence = 523 => 404,
    EvidenceGone = 524 => 410,

    // the house is not in a state to answer
    Conflict = 600 => 421,
    StoreUnavailable = 601 => 503,
    Draining = 602 => 503,
    PeerUnreachable = 603 => 502,
    Overloaded = 604 => 503,
    NoRoom = 605 => 503,
    NoAttachments = 606 => 503,
}

impl Rule {
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Whether the same request may succeed later without anybody changing it: the sender retries.
    pub const fn transient(self) -> bool {
        retryable(self.code())
    }
}

/// Codes after which a sending house retries; every other refusal bounces.
pub const fn retryable(code: u16) -> bool {
    matches!(code, 408 | 421 | 425 | 429 | 500 | 502 | 503 | 504)
}

/// A rule said no, and this is what a person can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub rule: Rule,
    /// Says what, where and how to mend it. Lower case, no full stop.
    pub reason: String,
    /// Seconds, with a 429 or 503.
    pub retry_after: Option<u64>,
    /// Bits that a proof of work would need, with a 402.
    pub pow_bits: Option<u32>,
}

impl Refusal {
    pub fn new(rule: Rule, reason: impl Into<String>) -> Self {
        Refusal { rule, reason: reason.into(), retry_after: None, pow_bits: None }
    }

    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub fn pow_bits(mut self, bits: u32) -> Self {
        self.pow_bits = Some(bits);
        self
    }

    pub const fn code(&self) -> u16 {
        self.rule.code()
    }

    pub const fn transient(&self) -> bool {
        self.rule.transient()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (VER-{:04})", self.reason, self.rule.number())
    }
}

impl std::error::Error for Refusal {}

/// How a command of the program ends. One enum, so that no two commands mean different things by one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Did what was asked; `check`: pass.
    Ok = 0,
    /// The answer is no; `check`: fail; `verify`: not valid.
    Fail = 1,
    /// Wrong flags, or a file that cannot be read or parsed.
    Usage = 2,
    /// No verdict could be reached, or the signer could not be established.
    Undecided = 3,
    /// The sandbox that the policy demands cannot be enforced here.
    Unenforced = 4,
    /// Well formed, but a rule refuses it.
    Refused = 5,
    /// The house or a peer cannot be reached.
    Unreachable = 69,
    /// A bug of ours.
    Bug = 70,
    /// The store or the disk failed.
    Disk = 74,
}

impl Exit {
    pub const ALL: &'static [Exit] = &[
        Exit::Ok,
        Exit::Fail,
        Exit::Usage,
        Exit::Undecided,
        Exit::Unenforced,
        Exit::Refused,
        Exit::Unreachable,
        Exit::Bug,
        Exit::Disk,
    ];

    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<&Refusal> for Exit {
    fn from(refusal: &Refusal) -> Exit {
        match refusal.rule {
            Rule::StoreUnavailable => Exit::Disk,
            Rule::PeerUnreachable | Rule::SenderUnreachable | Rule::Draining | Rule::Overloaded => Exit::Unreachable,
            _ => Exit::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_codes_are_the_protocols() {
        let mut numbers: Vec<u16> = Rule::ALL.iter().map(|r| r.number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), Rule::ALL.len());
        for rule in Rule::ALL {
            assert!((400..=599).contains(&rule.code()), "{rule:?}");
        }
    }

    #[test]
    fn transient_follows_the_code_table_of_the_sending_queue() {
        assert!(Rule::Conflict.transient());
        assert!(Rule::RateLimited.transient());
        assert!(Rule::StoreUnavailable.transient());
        assert!(!Rule::IdReused.transient());
        assert!(!Rule::NotEnough.transient());
    }
}
