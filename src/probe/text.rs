//! Strangers' text in reasons: cut to a length, and with everything that could act on a terminal or hide in a line
//! escaped. The same input always gives the same text.

/// `text` between double quotes, at most `cap` characters of it, then `…`.
pub fn quote(text: &str, cap: usize) -> String {
    quote_units(text.encode_utf16(), cap)
}

/// The same for UTF-16 code units; a surrogate without its pair is written as an escape.
pub fn quote_units(units: impl IntoIterator<Item = u16>, cap: usize) -> String {
    let mut out = String::from("\"");
    let mut chars = char::decode_utf16(units);
    for _ in 0..cap {
        match chars.next() {
            Some(Ok(c)) => push_escaped(&mut out, c),
            Some(Err(lone)) => push_unit(&mut out, lone.unpaired_surrogate()),
            None => {
                out.push('"');
                return out;
            }
        }
    }
    out.push_str(if chars.next().is_some() { "…\"" } else { "\"" });
    out
}

/// `text` without quotes, at most `cap` characters of it, then `…`; for text that reads as part of a sentence.
pub fn plain(text: &str, cap: usize) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == cap {
            out.push('…');
            break;
        }
        if is_hidden(c) { push_escaped(&mut out, c) } else { out.push(c) }
    }
    out
}

/// Bytes read as Latin-1, quoted.
pub fn quote_bytes(bytes: &[u8], cap: usize) -> String {
    quote_units(bytes.iter().map(|b| u16::from(*b)), cap)
}

/// One UTF-16 code unit as an escape of four hex digits.
pub fn push_unit(out: &mut String, unit: u16) {
    out.push_str("\\u");
    for shift in [12, 8, 4, 0] {
        out.push(char::from_digit(u32::from(unit >> shift) & 15, 16).unwrap_or('0'));
    }
}

/// One character as JSON would write it, with hidden characters escaped as well.
pub fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if is_hidden(c) => {
            let mut units = [0u16; 2];
            for unit in c.encode_utf16(&mut units) {
                push_unit(out, *unit);
            }
        }
        c => out.push(c),
    }
}

/// Controls, line separators, text direction, joiners, marks that show nothing, tags and private use.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_cuts_and_escapes() {
        assert_eq!(quote("abc", 3), "\"abc\"");
        assert_eq!(quote("abcd", 3), "\"abc…\"");
        assert_eq!(quote("a\u{1b}[2Jb\n\"\\", 80), "\"a\\u001b[2Jb\\n\\\"\\\\\"");
        assert_eq!(quote("\u{202e}x\u{200b}", 80), "\"\\u202ex\\u200b\"");
        assert_eq!(quote("\u{e0041}", 80), "\"\\udb40\\udc41\"");
        assert_eq!(quote("ñ😀", 80), "\"ñ😀\"");
        assert_eq!(quote_units([0xd800, 0x61], 80), "\"\\ud800a\"");
        assert_eq!(quote_bytes(&[0xe9, 0x07], 80), "\"é\\u0007\"");
        assert_eq!(quote("", 0), "\"\"");
    }

    #[test]
    fn plain_text_keeps_quotes_and_loses_controls() {
        assert_eq!(plain("say \"hi\"\n", 80), "say \"hi\"\\n");
        assert_eq!(plain("abcd", 2), "ab…");
        assert_eq!(plain("ab", 2), "ab");
    }
}
