//! Which characters a person does not see, or sees in another order than they stand in: one list for every room that
//! shows or keeps a stranger's words.

/// Characters that show nothing, or that change the order in which others show. Controls and spaces are not among them.
pub const fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a terminal could be moved, or its reader misled, by this character where it stands: controls of both ranges,
/// separators that some take for the end of a line, and what is invisible. The two marks that choose between the forms
/// of a sign are left as they are.
pub fn misleads(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || (is_invisible(c) && !matches!(c, '\u{fe0e}' | '\u{fe0f}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reorders_hides_or_moves_misleads_and_plain_words_do_not() {
        let bad = "\u{7}\u{1b}\u{7f}\u{9b}\u{ad}\u{61c}\u{200b}\u{2028}\u{2029}\u{202e}\u{2066}\u{3164}\u{feff}\u{fff9}\u{e0041}";
        assert!(bad.chars().all(misleads));
        assert!(!"Ñandú, 東京 ✔\u{fe0f} café\u{301}".chars().any(misleads));
        assert!(is_invisible('\u{fe0f}') && !is_invisible('\n') && !is_invisible('\u{2028}'));
    }
}
