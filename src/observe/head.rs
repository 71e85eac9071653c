//! The head of an answer, read strictly from the raw bytes.
//!
//! Promise: a head is accepted only if every reader that follows RFC 9112 gives it the same meaning; whatever two clients
//! in use read differently (bare LF, folded lines, a space before the colon, control bytes, blank lines before the status
//! line) is a fault. The answer does not depend on how the network split the bytes. No IO here.
//!
//! Deliberately absent: repair. A fault makes the test undecided, never a guess.

use crate::limits::{HEAD_BYTES_MAX, HEAD_LINES_MAX, INTERIM_MAX};
use crate::probe::observation::Header;

/// A final head (status 200 and up).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// HTTP/1.0 knows no transfer codings.
    pub http_1_0: bool,
    pub status: u16,
    pub headers: Vec<Header>,
}

impl Head {
    /// The raw values of every line of that name, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.headers.iter().filter(move |h| h.name == name).map(|h| h.value.as_slice())
    }
}

/// Reads interim heads and the final one. All of them together stay within one budget.
pub(super) struct HeadReader {
    lines: Lines,
    open: Option<Head>,
    interim: usize,
}

impl HeadReader {
    pub fn new() -> Self {
        HeadReader { lines: Lines::new(HEAD_BYTES_MAX), open: None, interim: 0 }
    }

    /// Whether anything has arrived at all.
    pub fn started(&self) -> bool {
        self.lines.spent > 0
    }

    /// Takes bytes from the front of `input`. `Some` is the final head; what is left in `input` follows it.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Head>, String> {
        while let Some(line) = self.lines.take(input).map_err(|fault| match fault {
            LineFault::Long => format!("the head is longer than {HEAD_BYTES_MAX} bytes"),
            LineFault::BareLf => "a line of the head ends without CR".to_string(),
        })? {
            let Some(mut head) = self.open.take() else {
                self.open = Some(status_line(&line)?);
                continue;
            };
            if !line.is_empty() {
                if head.headers.len() == HEAD_LINES_MAX {
                    return Err(format!("the head has more than {HEAD_LINES_MAX} lines"));
                }
                head.headers.push(field_line(&line)?);
                self.open = Some(head);
                continue;
            }
            if head.status >= 200 {
                return Ok(Some(head));
            }
            self.interim(&head)?;
        }
        Ok(None)
    }

    fn interim(&mut self, head: &Head) -> Result<(), String> {
        if head.status == 101 {
            return Err("status 101: the server changed the protocol".into());
        }
        if head.values("content-length").chain(head.values("transfer-encoding")).next().is_some() {
            return Err(format!("an interim answer ({}) announces content", head.status));
        }
        self.interim += 1;
        if self.interim > INTERIM_MAX {
            return Err(format!("more than {INTERIM_MAX} interim answers"));
        }
        Ok(())
    }
}

/// Lines that end in CRLF, within a budget of bytes over all of them.
pub(super) struct Lines {
    line: Vec<u8>,
    spent: usize,
    max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineFault {
    Long,
    BareLf,
}

impl Lines {
    pub fn new(max: usize) -> Self {
        Lines { line: Vec::new(), spent: 0, max }
    }

    /// The next line without its end, or `None` when the input ran out in the middle of one.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, LineFault> {
        let end = input.iter().position(|&b| b == b'\n');
        let (now, later) = input.split_at(end.map_or(input.len(), |at| at + 1));
        if now.len() > self.max - self.spent {
            return Err(LineFault::Long);
        }
        self.spent += now.len();
        self.line.extend_from_slice(now);
        *input = later;
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.line);
        line.pop();
        if line.pop() != Some(b'\r') {
            return Err(LineFault::BareLf);
        }
        Ok(Some(line))
    }

    /// Starts the budget again.
    pub fn reset(&mut self, max: usize) {
        *self = Lines::new(max);
    }
}

/// `HTTP/1.1 200 OK`, or the same without what follows the code.
fn status_line(line: &[u8]) -> Result<Head, String> {
    let fault = || "the first line of the answer is not an HTTP/1.1 status line".to_string();
    let (http_1_0, rest) = match (line.strip_prefix(b"HTTP/1.1 "), line.strip_prefix(b"HTTP/1.0 ")) {
        (Some(rest), _) => (false, rest),
        (None, Some(rest)) => (true, rest),
        (None, None) => return Err(fault()),
    };
    let (digits, reason) = rest.split_at_checked(3).ok_or_else(fault)?;
    if !digits.iter().all(u8::is_ascii_digit) || !(reason.is_empty() || reason.starts_with(b" ")) {
        return Err(fault());
    }
    if !reason.iter().all(|&b| text_byte(b)) {
        return Err("the status line holds a control byte".into());
    }
    let status = digits.iter().fold(0u16, |n, d| n * 10 + u16::from(d - b'0'));
    if !(100..=599).contains(&status) {
        return Err(format!("status {} is outside 100 to 599", String::from_utf8_lossy(digits)));
    }
    Ok(Head { http_1_0, status, headers: Vec::new() })
}

/// `name: value`; also what a trailer must look like.
pub(super) fn field_line(line: &[u8]) -> Result<Header, String> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err("a header line is folded".into());
    }
    let colon = line.iter().position(|&b| b == b':').ok_or("a header line has no colon")?;
    let (name, value) = line.split_at(colon);
    if name.is_empty() || !name.iter().all(|&b| token_byte(b)) {
        return Err(format!("a header name is not a token: {}", shown(name)));
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let value = trim(value.get(1..).unwrap_or_default());
    if !value.iter().all(|&b| text_byte(b)) {
        return Err(format!("the value of {name} holds a control byte"));
    }
    Ok(Header { name, value: value.to_vec() })
}

/// Without the optional whitespace around it.
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// What a field value or a reason phrase may hold: visible characters, space, tab and bytes over 0x7F.
pub(super) fn text_byte(b: u8) -> bool {
    b == b'\t' || (b >= 0x20 && b != 0x7F)
}

pub(super) fn token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// Bytes of a stranger, short and harmless, for a reason.
pub(super) fn shown(bytes: &[u8]) -> String {
    let cut = bytes.get(..SHOWN_MAX).unwrap_or(bytes);
    format!("\"{}{}\"", cut.escape_ascii(), if cut.len() < bytes.len() { "…" } else { "" })
}

const SHOWN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `bytes` whole and in every split into two parts, and byte by byte: one answer.
    fn read(bytes: &[u8]) -> Result<Option<(Head, Vec<u8>)>, String> {
        let parts = |parts: &[&[u8]]| {
            let mut reader = HeadReader::new();
            for (i, part) in parts.iter().enumerate() {
                let mut rest = *part;
                if let Some(head) = reader.feed(&mut rest)? {
                    let mut left = rest.to_vec();
                    parts[i + 1..].iter().for_each(|p| left.extend_from_slice(p));
                    return Ok(Some((head, left)));
                }
            }
            Ok(None)
        };
        let whole = parts(&[bytes]);
        if bytes.len() < 400 {
            for at in 0..=bytes.len() {
                assert_eq!(parts(&[&bytes[..at], &bytes[at..]]), whole, "split at {at}");
            }
            assert_eq!(parts(&bytes.chunks(1).collect::<Vec<_>>()), whole);
        }
        whole
    }

    fn fault(text: &str) -> String {
        read(text.as_bytes()).expect_err(text)
    }

    fn head(text: &str) -> Head {
        read(text.as_bytes()).expect(text).expect("unfinished").0
    }

    #[test]
    fn a_plain_head_keeps_order_case_free_names_and_raw_values() {
        let (head, rest) =
            read(b"HTTP/1.1 200 OK\r\nX-T: a\r\nx-t:\t b c \t\r\nE:\r\nL: \xe9\r\n\r\nbody").unwrap().unwrap();
        assert_eq!((head.status, head.http_1_0), (200, false));
        assert_eq!(head.values("x-t").collect::<Vec<_>>(), [b"a".as_slice(), b"b c"]);
        assert_eq!(head.values("e").collect::<Vec<_>>(), [b"".as_slice()]);
        assert_eq!(head.values("l").collect::<Vec<_>>(), [b"\xe9".as_slice()]);
        assert_eq!(rest, b"body");
        assert_eq!(head.headers.iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["x-t", "x-t", "e", "l"]);
    }

    #[test]
    fn status_lines_that_clients_agree_on() {
        for (line, status) in
            [("HTTP/1.1 200", 200), ("HTTP/1.1 404 ", 404), ("HTTP/1.0 599 \u{e9}", 599), ("HTTP/1.1 200 a\tb", 200)]
        {
            assert_eq!(head(&format!("{line}\r\n\r\n")).status, status, "{line}");
        }
    }

    #[test]
    fn status_lines_that_are_refused() {
        for line in [
            "",
            "200 OK",
            "HTTP/1.1",
            "HTTP/1.1 ",
            "HTTP/1.1 20",
            "HTTP/1.1 20 OK",
            "HTTP/1.1 0200 OK",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1  200 OK",
            "HTTP/1.1 200\tOK",
            "HTTP/1.1\t200 OK",
            "HTTP/2 200 OK",
            "HTTP/1.2 200 OK",
            "HTTP/0.9 200 OK",
            "ICY 200 OK",
            "http/1.1 200 OK",
            " HTTP/1.1 200 OK",
            "HTTP/1.1 +20 OK",
            "HTTP/1.1 099 X",
            "HTTP/1.1 000 X",
            "HTTP/1.1 600 X",
            "HTTP/1.1 999 X",
            "HTTP/1.1 200 a\0b",
            "HTTP/1.1 200 a\rb",
            "HTTP/1.1 200 \x7f",
            "HTTP/1.1 ２００ OK",
        ] {
            fault(&format!("{line}\r\n\r\n"));
        }
    }

    #[test]
    fn header_lines_that_clients_read_differently_are_refused() {
        for lines in [
            "X-T: a\r\n  b",
            "X-T: a\r\n\tb",
            " X-T: a",
            "X-T : a",
            "X-T\t: a",
            "X T: a",
            "X(T: a",
            ": a",
            "no colon",
            "X-T: a\0b",
            "X-T: a\rb",
            "X-T: \x01",
            "X-T: \x7f",
            "X\u{e9}: a",
            "X-T: a\r",
            "\"x\": a",
        ] {
            fault(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n"));
        }
    }

    #[test]
    fn line_ends_are_crlf_and_nothing_comes_before_the_status_line() {
        fault("HTTP/1.1 200 OK\n\n");
        fault("HTTP/1.1 200 OK\r\nX: a\n\r\n");
        fault("HTTP/1.1 200 OK\r\nX: a\r\n\n");
        fault("\r\nHTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(read(b"HTTP/1.1 200 OK\r\nX: a\r\n\r"), Ok(None));
        assert_eq!(read(b""), Ok(None));
    }

    #[test]
    fn interim_answers_are_passed_over_up_to_the_limit() {
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\nX: final\r\n\r\n";
        let end = head(&format!("HTTP/1.1 100 Continue\r\n\r\n{hint}{last}"));
        assert_eq!((end.status, end.headers.len()), (200, 1));
        assert_eq!(head(&format!("{}{last}", hint.repeat(INTERIM_MAX))).status, 200);
        assert!(fault(&format!("{}{last}", hint.repeat(INTERIM_MAX + 1))).contains("interim"));
        assert!(fault("HTTP/1.1 101 Switching Protocols\r\n\r\n").contains("101"));
        assert!(fault("HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n").contains("announces"));
        assert!(fault("HTTP/1.1 103 X\r\nTransfer-Encoding: chunked\r\n\r\n").contains("announces"));
    }

    #[test]
    fn the_line_limit_counts_header_lines_and_not_the_status_line() {
        let with = |n: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: a\r\n".repeat(n));
        assert_eq!(head(&with(HEAD_LINES_MAX)).headers.len(), HEAD_LINES_MAX);
        assert!(fault(&with(HEAD_LINES_MAX + 1)).contains("lines"));
        assert_eq!(head(&with(0)).headers.len(), 0);
    }

    #[test]
    fn the_byte_limit_counts_interim_heads_too() {
        let with = |before: &str, total: usize| {
            let fixed = before.len() + "HTTP/1.1 200 OK\r\nX: \r\n\r\n".len();
            format!("{before}HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "a".repeat(total - fixed))
        };
        for before in ["", "HTTP/1.1 100 Continue\r\n\r\n"] {
            assert_eq!(head(&with(before, HEAD_BYTES_MAX)).status, 200);
            assert!(fault(&with(before, HEAD_BYTES_MAX + 1)).contains("bytes"));
        }
        let mut reader = HeadReader::new();
        let endless = vec![b'a'; HEAD_BYTES_MAX];
        assert_eq!(reader.feed(&mut endless.as_slice()), Ok(None));
        assert!(reader.feed(&mut b"a".as_slice()).is_err());
    }
}
