//! The content of an answer: how it is framed, and where it ends. No IO here.
//!
//! Promise: `Complete` is said only of content whose end the server stated and delivered; a bound on what is read is
//! reached at the same byte however the network split the stream. Ask for one byte more than the largest content that is
//! acceptable: a chunked or close-delimited content that ends exactly at the bound is reported as cut.
//!
//! Deliberately absent: content codings. The bytes are hashed and kept as they came.

use super::head::{Head, LineFault, Lines, field_line, text_byte, token_byte};
use crate::limits::{
    CHUNK_EXTENSION_BYTES_MAX, CHUNK_LINE_BYTES_MAX, CHUNK_SIZE_DIGITS_MAX, CONTENT_LENGTH_DIGITS_MAX, HEAD_BYTES_MAX,
    HEAD_LINES_MAX,
};
use crate::probe::observation::{Cause, Content, End, Method};
use crate::wire::Sha256;
use sha2::Digest;

/// How the end of the content is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// No content by rule (204, 304, an answer to HEAD): bytes that come all the same are a fault of the server.
    Nothing,
    Length(u64),
    Chunked,
    /// Until the connection closes.
    Close,
}

/// How the connection ended before the content did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// With close_notify: the server said that this is the end.
    Notified,
    /// TCP ended and TLS did not.
    Silent,
    /// Reset, damaged, or out of time.
    Broken { cause: Cause, reason: String },
}

/// The framing that every reader would see, or why there is none (V26).
pub(super) fn framing(head: &Head, method: Method) -> Result<Framing, String> {
    let codings: Vec<&[u8]> = head.values("transfer-encoding").collect();
    let lengths: Vec<&[u8]> = head.values("content-length").collect();
    let framing = match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => Framing::Close,
        ([], [length]) => Framing::Length(content_length(length)?),
        ([], _) => return Err("more than one content-length line".into()),
        (_, [_, ..]) => return Err("both transfer-encoding and content-length".into()),
        (_, []) if head.http_1_0 => return Err("transfer-encoding in an HTTP/1.0 answer".into()),
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => Framing::Chunked,
        _ => return Err("a transfer-encoding other than exactly one chunked".into()),
    };
    Ok(if method == Method::Head || matches!(head.status, 204 | 304) { Framing::Nothing } else { framing })
}

fn content_length(text: &[u8]) -> Result<u64, String> {
    let digits = (1..=CONTENT_LENGTH_DIGITS_MAX).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    number.ok_or_else(|| "content-length is not a number".to_string())
}

/// Takes the bytes that follow the head, and says when it has seen enough.
pub(super) struct BodyReader {
    state: State,
    sink: Sink,
}

enum State {
    Nothing,
    Length { left: u64, of: u64 },
    Chunked(Chunked),
    Close,
}

impl BodyReader {
    /// Reads up to `read` bytes and keeps the first `keep` of them.
    pub fn new(framing: Framing, read: u64, keep: u64) -> Self {
        let state = match framing {
            Framing::Nothing => State::Nothing,
            Framing::Length(of) => State::Length { left: of, of },
            Framing::Chunked => State::Chunked(Chunked::new()),
            Framing::Close => State::Close,
        };
        BodyReader { state, sink: Sink { read, keep, kept: Vec::new(), bytes: 0, hash: sha2::Sha256::new() } }
    }

    /// `Some` when nothing that may still come would change the answer.
    pub fn feed(&mut self, mut input: &[u8]) -> Option<End> {
        match &mut self.state {
            State::Nothing => {
                self.sink.take(&mut input, u64::MAX);
                self.sink.full().then(|| self.closed(Closed::Silent))
            }
            State::Length { left, .. } => {
                *left -= self.sink.take(&mut input, *left);
                if *left == 0 { Some(End::Complete) } else { self.sink.full().then_some(End::Cut) }
            }
            State::Chunked(chunked) => match chunked.feed(&mut input, &mut self.sink) {
                Ok(end) => end,
                Err(reason) => Some(End::Broken { cause: Cause::Origin, reason }),
            },
            State::Close => {
                self.sink.take(&mut input, u64::MAX);
                self.sink.full().then_some(End::Cut)
            }
        }
    }

    /// What the end of the connection means for the content.
    pub fn closed(&self, how: Closed) -> End {
        let origin = |reason: String| End::Broken { cause: Cause::Origin, reason };
        match (&self.state, how) {
            (State::Nothing, _) if self.sink.bytes > 0 => {
                origin("content after an answer that has none by rule".to_string())
            }
            (State::Nothing | State::Length { left: 0, .. }, _) | (State::Close, Closed::Notified) => End::Complete,
            (_, Closed::Broken { cause, reason }) => End::Broken { cause, reason },
            (State::Close, Closed::Silent) => End::Unconfirmed,
            (State::Length { left, of }, _) => {
                origin(format!("the connection closed after {} of {of} content bytes", of - left))
            }
            (State::Chunked(_), _) => origin("the connection closed before the end of the chunked content".to_string()),
        }
    }

    pub fn into_content(self, end: End) -> Content {
        let Sink { kept, bytes, hash, .. } = self.sink;
        Content { kept, bytes, sha256: Sha256(hash.finalize().into()), end }
    }
}

/// Counts, hashes and keeps content bytes up to a bound.
struct Sink {
    read: u64,
    keep: u64,
    kept: Vec<u8>,
    bytes: u64,
    hash: sha2::Sha256,
}

impl Sink {
    /// Takes at most `limit` bytes from the front of `input`, and no more than there is room for.
    fn take(&mut self, input: &mut &[u8], limit: u64) -> u64 {
        let room = (self.read - self.bytes).min(limit);
        let size = usize::try_from(room).unwrap_or(usize::MAX).min(input.len());
        let (now, later) = input.split_at(size);
        let keep = usize::try_from(self.keep.saturating_sub(self.bytes)).unwrap_or(usize::MAX).min(size);
        self.kept.extend_from_slice(now.get(..keep).unwrap_or(now));
        self.hash.update(now);
        self.bytes += size as u64;
        *input = later;
        size as u64
    }

    fn full(&self) -> bool {
        self.bytes >= self.read
    }
}

/// The chunked coding of RFC 9112 section 7.1, without the leniencies of section 2.2.
struct Chunked {
    at: At,
    lines: Lines,
    extensions: usize,
    trailers: usize,
}

enum At {
    Size,
    Data(u64),
    /// The CRLF after the data.
    DataEnd,
    Trailer,
}

impl Chunked {
    fn new() -> Self {
        Chunked { at: At::Size, lines: Lines::new(CHUNK_LINE_BYTES_MAX), extensions: 0, trailers: 0 }
    }

    fn feed(&mut self, input: &mut &[u8], sink: &mut Sink) -> Result<Option<End>, String> {
        loop {
            if let At::Data(left) = &mut self.at {
                *left -= sink.take(input, *left);
                if sink.full() {
                    return Ok(Some(End::Cut));
                }
                if *left > 0 {
                    return Ok(None);
                }
                self.at = At::DataEnd;
                self.lines.reset(CRLF);
            }
            let Some(line) = self.lines.take(input).map_err(|fault| self.line_fault(fault))? else {
                return Ok(None);
            };
            match self.at {
                At::DataEnd => {
                    if !line.is_empty() {
                        return Err("a chunk is longer than its size says".into());
                    }
                    self.at = At::Size;
                    self.lines.reset(CHUNK_LINE_BYTES_MAX);
                }
                At::Trailer => {
                    if line.is_empty() {
                        return Ok(Some(End::Complete));
                    }
                    field_line(&line).map_err(|fault| format!("in a trailer: {fault}"))?;
                    self.trailers += 1;
                    if self.trailers > HEAD_LINES_MAX {
                        return Err(format!("more than {HEAD_LINES_MAX} trailers"));
                    }
                }
                At::Size | At::Data(_) => {
                    let size = self.size(&line)?;
                    self.at = if size == 0 { At::Trailer } else { At::Data(size) };
                    self.lines.reset(HEAD_BYTES_MAX);
                }
            }
        }
    }

    fn line_fault(&self, fault: LineFault) -> String {
        match (fault, &self.at) {
            (LineFault::Long, At::DataEnd) => "a chunk is longer than its size says".into(),
            (LineFault::Long, At::Trailer) => format!("the trailers are longer than {HEAD_BYTES_MAX} bytes"),
            (LineFault::Long, _) => format!("a chunk size line is longer than {CHUNK_LINE_BYTES_MAX} bytes"),
            (LineFault::BareLf, _) => "a line of the chunked content ends without CR".into(),
        }
    }

    fn size(&mut self, line: &[u8]) -> Result<u64, String> {
        let digits = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
        let (digits, extension) = line.split_at(digits);
        let fault = "a chunk size is not a hexadecimal number";
        if digits.len() > CHUNK_SIZE_DIGITS_MAX {
            return Err(fault.into());
        }
        let size = std::str::from_utf8(digits).ok().and_then(|t| u64::from_str_radix(t, 16).ok()).ok_or(fault)?;
        if !extensions(extension) {
            return Err("a chunk size is followed by something that is no extension".into());
        }
        self.extensions += extension.len();
        if self.extensions > CHUNK_EXTENSION_BYTES_MAX {
            return Err(format!("more than {CHUNK_EXTENSION_BYTES_MAX} bytes of chunk extensions"));
        }
        Ok(size)
    }
}

/// Any number of `;name`, `;name=token` and `;name="text"`, without whitespace: clients differ on that.
fn extensions(mut rest: &[u8]) -> bool {
    let token = |bytes: &[u8]| bytes.iter().position(|&b| !token_byte(b)).unwrap_or(bytes.len());
    while let [b';', after @ ..] = rest {
        let name = token(after);
        rest = after.get(name..).unwrap_or_default();
        let value = match rest {
            [b'=', b'"', quoted @ ..] => match quoted_end(quoted) {
                Some(end) => end + 2,
                None => return false,
            },
            [b'=', value @ ..] => match token(value) {
                0 => return false,
                n => n + 1,
            },
            _ => 0,
        };
        if name == 0 {
            return false;
        }
        rest = rest.get(value..).unwrap_or_default();
    }
    rest.is_empty()
}

/// The length of a quoted string after its opening quote, closing quote included.
fn quoted_end(bytes: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (i, &b) in bytes.iter().enumerate() {
        match b {
            _ if !text_byte(b) => return None,
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(i + 1),
            _ => {}
        }
    }
    None
}

const CRLF: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::head::HeadReader;

    fn framing_of(lines: &str, method: Method) -> Result<Framing, String> {
        let text = format!(
            "{}\r\n\r\n",
            if lines.starts_with("HTTP") { lines.into() } else { format!("HTTP/1.1 200 OK\r\n{lines}") }
        );
        let head = HeadReader::new().feed(&mut text.as_bytes()).expect("head").expect("whole head");
        framing(&head, method)
    }

    /// The same content in every split into two, and byte by byte.
    fn content(framing: Framing, read: u64, bytes: &[u8], how: Closed) -> Content {
        let run = |parts: &[&[u8]]| {
            let mut body = BodyReader::new(framing, read, read / 2);
            for part in parts {
                if let Some(end) = body.feed(part) {
                    return body.into_content(end);
                }
            }
            let end = body.closed(how.clone());
            body.into_content(end)
        };
        let whole = run(&[b"", bytes]);
        for at in 0..=bytes.len() {
            let (a, b) = bytes.split_at(at);
            assert_eq!(run(&[a, b]), whole, "split at {at} of {:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(run(&bytes.chunks(1).collect::<Vec<_>>()), whole);
        whole
    }

    fn end(framing: Framing, bytes: &str, how: Closed) -> (u64, &'static str) {
        let content = content(framing, 1_000, bytes.as_bytes(), how);
        let name = match content.end {
            End::Complete => "complete",
            End::Unconfirmed => "unconfirmed",
            End::Cut => "cut",
            End::NotRead => "not read",
            End::Broken { cause: Cause::Origin, .. } => "origin",
            End::Broken { .. } => "network",
        };
        (content.bytes, name)
    }

    fn reset() -> Closed {
        Closed::Broken { cause: Cause::Network, reason: "reset".into() }
    }

    #[test]
    fn framing_that_every_reader_sees() {
        for (lines, expect) in [
            ("", Framing::Close),
            ("Content-Length: 5", Framing::Length(5)),
            ("Content-Length: 005", Framing::Length(5)),
            ("Content-Length:\t 0 ", Framing::Length(0)),
            ("Content-Length: 9999999999999999999", Framing::Length(9_999_999_999_999_999_999)),
            ("Transfer-Encoding: Chunked", Framing::Chunked),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5", Framing::Length(5)),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 5", Framing::Nothing),
            ("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked", Framing::Nothing),
            ("HTTP/1.1 205 Reset\r\nContent-Length: 5", Framing::Length(5)),
        ] {
            assert_eq!(framing_of(lines, Method::Get), Ok(expect), "{lines}");
        }
        assert_eq!(framing_of("Content-Length: 5", Method::Head), Ok(Framing::Nothing));
    }

    #[test]
    fn framing_that_clients_read_differently_is_refused() {
        for lines in [
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5, 5",
            "Content-Length: +5",
            "Content-Length: -5",
            "Content-Length: 5.0",
            "Content-Length: 0x5",
            "Content-Length: 5 5",
            "Content-Length: abc",
            "Content-Length:",
            "Content-Length: 10000000000000000000",
            "Content-Length: \u{665}",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: identity\r\nContent-Length: 5",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: chunked;q=1",
            "Transfer-Encoding: identity",
            "Transfer-Encoding:",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
        ] {
            assert!(framing_of(lines, Method::Get).is_err(), "{lines}");
            assert!(framing_of(lines, Method::Head).is_err(), "{lines}");
        }
    }

    #[test]
    fn a_length_is_complete_when_it_is_there_however_the_connection_ends() {
        for how in [Closed::Notified, Closed::Silent, reset()] {
            assert_eq!(end(Framing::Length(5), "hello", how.clone()), (5, "complete"));
            assert_eq!(end(Framing::Length(5), "hello and more", how.clone()), (5, "complete"));
            assert_eq!(end(Framing::Length(0), "", how), (0, "complete"));
        }
        assert_eq!(end(Framing::Length(6), "hello", Closed::Notified), (5, "origin"));
        assert_eq!(end(Framing::Length(6), "hello", Closed::Silent), (5, "origin"));
        assert_eq!(end(Framing::Length(6), "hello", reset()), (5, "network"));
        assert_eq!(end(Framing::Length(6), "", Closed::Notified), (0, "origin"));
    }

    #[test]
    fn until_close_needs_the_notice() {
        assert_eq!(end(Framing::Close, "hello", Closed::Notified), (5, "complete"));
        assert_eq!(end(Framing::Close, "hello", Closed::Silent), (5, "unconfirmed"));
        assert_eq!(end(Framing::Close, "hello", reset()), (5, "network"));
        assert_eq!(end(Framing::Close, "", Closed::Notified), (0, "complete"));
    }

    #[test]
    fn no_content_by_rule_shows_bytes_that_came_all_the_same() {
        for how in [Closed::Notified, Closed::Silent, reset()] {
            assert_eq!(end(Framing::Nothing, "", how.clone()), (0, "complete"));
            assert_eq!(end(Framing::Nothing, "x", how), (1, "origin"));
        }
    }

    #[test]
    fn chunks_that_are_complete() {
        for text in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "005\r\nhello\r\n000\r\n\r\n",
            "2\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: a\r\nY: \r\n\r\n",
            "5;a=b\r\nhello\r\n0;a;b=\"c \\\" d\";e=f\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\nand what follows",
            "A\r\n0\r\n\r\n12345\r\n0\r\n\r\n",
        ] {
            for how in [Closed::Notified, Closed::Silent, reset()] {
                assert_eq!(end(Framing::Chunked, text, how).1, "complete", "{text:?}");
            }
        }
        let whole = content(Framing::Chunked, 100, b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", Closed::Silent);
        assert_eq!((whole.kept.as_slice(), whole.sha256), (b"hello".as_slice(), Sha256::of("hello")));
    }

    #[test]
    fn chunks_that_are_not() {
        for text in [
            "",
            "5",
            "5\r\n",
            "5\r\nhel",
            "5\r\nhello",
            "5\r\nhello\r\n",
            "5\r\nhello\r\n0",
            "5\r\nhello\r\n0\r\n",
            "5\r\nhello\r\n0\r\nX: a\r\n",
            "5\r\nhello\r\n0\r\n\r",
            "5 \r\nhello\r\n0\r\n\r\n",
            " 5\r\nhello\r\n0\r\n\r\n",
            "5\nhello\n0\n\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello\r\n0\n\r\n",
            "5\r\nhello\r\n0\r\n\n",
            "5\r\nhello!\r\n0\r\n\r\n",
            "5\r\nhell\r\n0\r\n\r\n",
            "x\r\nhello\r\n0\r\n\r\n",
            "+5\r\nhello\r\n0\r\n\r\n",
            "-5\r\nhello\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "5,\r\nhello\r\n0\r\n\r\n",
            "\r\nhello\r\n0\r\n\r\n",
            "5;\r\nhello\r\n0\r\n\r\n",
            "5 ;a\r\nhello\r\n0\r\n\r\n",
            "5; a\r\nhello\r\n0\r\n\r\n",
            "5;a=\r\nhello\r\n0\r\n\r\n",
            "5;a=\"b\r\nhello\r\n0\r\n\r\n",
            "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n",
            "5;a\0\r\nhello\r\n0\r\n\r\n",
            "5;a=\"\x01\"\r\nhello\r\n0\r\n\r\n",
            "10000000000000000\r\nhello\r\n0\r\n\r\n",
            "00000000000000005\r\nhello\r\n0\r\n\r\n",
            "0\r\n bad: a\r\n\r\n",
            "0\r\nbad\r\n\r\n",
            "0\r\nbad : a\r\n\r\n",
            "0\r\nbad: \0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ] {
            assert_eq!(end(Framing::Chunked, text, Closed::Notified).1, "origin", "{text:?}");
        }
        assert_eq!(end(Framing::Chunked, "ffffffffffffffff\r\nhello", reset()), (5, "network"));
    }

    #[test]
    fn the_bound_on_reading_is_exact_in_every_framing() {
        for (framing, text) in [
            (Framing::Length(8), "abcdefgh"),
            (Framing::Chunked, "3\r\nabc\r\n5\r\ndefgh\r\n0\r\n\r\n"),
            (Framing::Close, "abcdefgh"),
        ] {
            for read in 1..=9 {
                let seen = content(framing, read, text.as_bytes(), Closed::Notified);
                let count = read.min(8);
                assert_eq!(seen.bytes, count);
                assert_eq!(seen.sha256, Sha256::of(&"abcdefgh"[..count as usize]));
                assert_eq!(seen.kept, "abcdefgh".as_bytes()[..(read / 2) as usize]);
                let complete = read > 8 || (read == 8 && framing == Framing::Length(8));
                assert_eq!(seen.end, if complete { End::Complete } else { End::Cut }, "{framing:?} {read}");
            }
        }
    }

    #[test]
    fn the_limits_of_the_chunked_coding_hold_exactly() {
        let run = |text: &str| {
            let mut body = BodyReader::new(Framing::Chunked, u64::MAX, 0);
            body.feed(text.as_bytes())
        };
        let broken = |end: Option<End>| matches!(end, Some(End::Broken { cause: Cause::Origin, .. }));
        let line = |n: usize| format!("0;{}\r\n\r\n", "a".repeat(n - "0;\r\n".len()));
        assert_eq!(run(&line(CHUNK_LINE_BYTES_MAX)), Some(End::Complete));
        assert!(broken(run(&line(CHUNK_LINE_BYTES_MAX + 1))));
        let many = |n: usize| format!("{}0\r\n\r\n", format!("1;{}\r\nx\r\n", "a".repeat(63)).repeat(n));
        assert_eq!(run(&many(CHUNK_EXTENSION_BYTES_MAX / 64)), Some(End::Complete));
        assert!(broken(run(&many(CHUNK_EXTENSION_BYTES_MAX / 64 + 1))));
        let trailers = |n: usize| format!("0\r\n{}\r\n", "X: a\r\n".repeat(n));
        assert_eq!(run(&trailers(HEAD_LINES_MAX)), Some(End::Complete));
        assert!(broken(run(&trailers(HEAD_LINES_MAX + 1))));
        let long = |n: usize| format!("0\r\nX: {}\r\n\r\n", "a".repeat(n - "X: \r\n\r\n".len()));
        assert_eq!(run(&long(HEAD_BYTES_MAX)), Some(End::Complete));
        assert!(broken(run(&long(HEAD_BYTES_MAX + 1))));
    }
}
