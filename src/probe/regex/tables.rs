//! Pinned Unicode facts that the property crate does not carry: the upper-case folding of RegExp without `u`, the code
//! points whose properties moved between the Unicode versions that Node 20 has been built with, and the script names.
//!
//! Promises that every answer comes from one pinned version; where a living version could answer otherwise, the code
//! point is listed here as restless. Deliberately absent: anything that `regex-syntax` already has.

/// The version of every table that a pattern is judged with.
pub(super) const UNICODE_VERSION: &str = "16.0.0";

/// The oldest version still in use by a Node 20. A code point assigned later is in doubt (V72).
pub(super) const SETTLED_AGE: &str = "15.0";

/// `(first, last, step, delta)`: single UTF-16 units whose upper case is another single unit, as ECMAScript folds without
/// `u`: mappings to several units and mappings from beyond ASCII into ASCII are left out.
#[rustfmt::skip]
pub(super) static UPPER: &[(u16, u16, u16, i32)] = &[
    (0x61, 0x7A, 1, -32), (0xB5, 0xB5, 1, 743), (0xE0, 0xF6, 1, -32), (0xF8, 0xFE, 1, -32), (0xFF, 0xFF, 1, 121),
    (0x101, 0x12F, 2, -1), (0x133, 0x137, 2, -1), (0x13A, 0x148, 2, -1), (0x14B, 0x177, 2, -1), (0x17A, 0x17E, 2, -1),
    (0x180, 0x180, 1, 195), (0x183, 0x185, 2, -1), (0x188, 0x188, 1, -1), (0x18C, 0x18C, 1, -1),
    (0x192, 0x192, 1, -1), (0x195, 0x195, 1, 97), (0x199, 0x199, 1, -1), (0x19A, 0x19A, 1, 163),
    (0x19B, 0x19B, 1, 42561), (0x19E, 0x19E, 1, 130), (0x1A1, 0x1A5, 2, -1), (0x1A8, 0x1A8, 1, -1),
    (0x1AD, 0x1AD, 1, -1), (0x1B0, 0x1B0, 1, -1), (0x1B4, 0x1B6, 2, -1), (0x1B9, 0x1B9, 1, -1), (0x1BD, 0x1BD, 1, -1),
    (0x1BF, 0x1BF, 1, 56), (0x1C5, 0x1C5, 1, -1), (0x1C6, 0x1C6, 1, -2), (0x1C8, 0x1C8, 1, -1), (0x1C9, 0x1C9, 1, -2),
    (0x1CB, 0x1CB, 1, -1), (0x1CC, 0x1CC, 1, -2), (0x1CE, 0x1DC, 2, -1), (0x1DD, 0x1DD, 1, -79),
    (0x1DF, 0x1EF, 2, -1), (0x1F2, 0x1F2, 1, -1), (0x1F3, 0x1F3, 1, -2), (0x1F5, 0x1F5, 1, -1), (0x1F9, 0x21F, 2, -1),
    (0x223, 0x233, 2, -1), (0x23C, 0x23C, 1, -1), (0x23F, 0x240, 1, 10815), (0x242, 0x242, 1, -1),
    (0x247, 0x24F, 2, -1), (0x250, 0x250, 1, 10783), (0x251, 0x251, 1, 10780), (0x252, 0x252, 1, 10782),
    (0x253, 0x253, 1, -210), (0x254, 0x254, 1, -206), (0x256, 0x257, 1, -205), (0x259, 0x259, 1, -202),
    (0x25B, 0x25B, 1, -203), (0x25C, 0x25C, 1, 42319), (0x260, 0x260, 1, -205), (0x261, 0x261, 1, 42315),
    (0x263, 0x263, 1, -207), (0x264, 0x264, 1, 42343), (0x265, 0x265, 1, 42280), (0x266, 0x266, 1, 42308),
    (0x268, 0x268, 1, -209), (0x269, 0x269, 1, -211), (0x26A, 0x26A, 1, 42308), (0x26B, 0x26B, 1, 10743),
    (0x26C, 0x26C, 1, 42305), (0x26F, 0x26F, 1, -211), (0x271, 0x271, 1, 10749), (0x272, 0x272, 1, -213),
    (0x275, 0x275, 1, -214), (0x27D, 0x27D, 1, 10727), (0x280, 0x280, 1, -218), (0x282, 0x282, 1, 42307),
    (0x283, 0x283, 1, -218), (0x287, 0x287, 1, 42282), (0x288, 0x288, 1, -218), (0x289, 0x289, 1, -69),
    (0x28A, 0x28B, 1, -217), (0x28C, 0x28C, 1, -71), (0x292, 0x292, 1, -219), (0x29D, 0x29D, 1, 42261),
    (0x29E, 0x29E, 1, 42258), (0x345, 0x345, 1, 84), (0x371, 0x373, 2, -1), (0x377, 0x377, 1, -1),
    (0x37B, 0x37D, 1, 130), (0x3AC, 0x3AC, 1, -38), (0x3AD, 0x3AF, 1, -37), (0x3B1, 0x3C1, 1, -32),
    (0x3C2, 0x3C2, 1, -31), (0x3C3, 0x3CB, 1, -32), (0x3CC, 0x3CC, 1, -64), (0x3CD, 0x3CE, 1, -63),
    (0x3D0, 0x3D0, 1, -62), (0x3D1, 0x3D1, 1, -57), (0x3D5, 0x3D5, 1, -47), (0x3D6, 0x3D6, 1, -54),
    (0x3D7, 0x3D7, 1, -8), (0x3D9, 0x3EF, 2, -1), (0x3F0, 0x3F0, 1, -86), (0x3F1, 0x3F1, 1, -80),
    (0x3F2, 0x3F2, 1, 7), (0x3F3, 0x3F3, 1, -116), (0x3F5, 0x3F5, 1, -96), (0x3F8, 0x3F8, 1, -1),
    (0x3FB, 0x3FB, 1, -1), (0x430, 0x44F, 1, -32), (0x450, 0x45F, 1, -80), (0x461, 0x481, 2, -1),
    (0x48B, 0x4BF, 2, -1), (0x4C2, 0x4CE, 2, -1), (0x4CF, 0x4CF, 1, -15), (0x4D1, 0x52F, 2, -1),
    (0x561, 0x586, 1, -48), (0x10D0, 0x10FA, 1, 3008), (0x10FD, 0x10FF, 1, 3008), (0x13F8, 0x13FD, 1, -8),
    (0x1C80, 0x1C80, 1, -6254), (0x1C81, 0x1C81, 1, -6253), (0x1C82, 0x1C82, 1, -6244), (0x1C83, 0x1C84, 1, -6242),
    (0x1C85, 0x1C85, 1, -6243), (0x1C86, 0x1C86, 1, -6236), (0x1C87, 0x1C87, 1, -6181), (0x1C88, 0x1C88, 1, 35266),
    (0x1C8A, 0x1C8A, 1, -1), (0x1D79, 0x1D79, 1, 35332), (0x1D7D, 0x1D7D, 1, 3814), (0x1D8E, 0x1D8E, 1, 35384),
    (0x1E01, 0x1E95, 2, -1), (0x1E9B, 0x1E9B, 1, -59), (0x1EA1, 0x1EFF, 2, -1), (0x1F00, 0x1F07, 1, 8),
    (0x1F10, 0x1F15, 1, 8), (0x1F20, 0x1F27, 1, 8), (0x1F30, 0x1F37, 1, 8), (0x1F40, 0x1F45, 1, 8),
    (0x1F51, 0x1F57, 2, 8), (0x1F60, 0x1F67, 1, 8), (0x1F70, 0x1F71, 1, 74), (0x1F72, 0x1F75, 1, 86),
    (0x1F76, 0x1F77, 1, 100), (0x1F78, 0x1F79, 1, 128), (0x1F7A, 0x1F7B, 1, 112), (0x1F7C, 0x1F7D, 1, 126),
    (0x1FB0, 0x1FB1, 1, 8), (0x1FBE, 0x1FBE, 1, -7205), (0x1FD0, 0x1FD1, 1, 8), (0x1FE0, 0x1FE1, 1, 8),
    (0x1FE5, 0x1FE5, 1, 7), (0x214E, 0x214E, 1, -28), (0x2170, 0x217F, 1, -16), (0x2184, 0x2184, 1, -1),
    (0x24D0, 0x24E9, 1, -26), (0x2C30, 0x2C5F, 1, -48), (0x2C61, 0x2C61, 1, -1), (0x2C65, 0x2C65, 1, -10795),
    (0x2C66, 0x2C66, 1, -10792), (0x2C68, 0x2C6C, 2, -1), (0x2C73, 0x2C73, 1, -1), (0x2C76, 0x2C76, 1, -1),
    (0x2C81, 0x2CE3, 2, -1), (0x2CEC, 0x2CEE, 2, -1), (0x2CF3, 0x2CF3, 1, -1), (0x2D00, 0x2D25, 1, -7264),
    (0x2D27, 0x2D27, 1, -7264), (0x2D2D, 0x2D2D, 1, -7264), (0xA641, 0xA66D, 2, -1), (0xA681, 0xA69B, 2, -1),
    (0xA723, 0xA72F, 2, -1), (0xA733, 0xA76F, 2, -1), (0xA77A, 0xA77C, 2, -1), (0xA77F, 0xA787, 2, -1),
    (0xA78C, 0xA78C, 1, -1), (0xA791, 0xA793, 2, -1), (0xA794, 0xA794, 1, 48), (0xA797, 0xA7A9, 2, -1),
    (0xA7B5, 0xA7C3, 2, -1), (0xA7C8, 0xA7CA, 2, -1), (0xA7CD, 0xA7CD, 1, -1), (0xA7D1, 0xA7D1, 1, -1),
    (0xA7D7, 0xA7DB, 2, -1), (0xA7F6, 0xA7F6, 1, -1), (0xAB53, 0xAB53, 1, -928), (0xAB70, 0xABBF, 1, -38864),
    (0xFF41, 0xFF5A, 1, -32),
];

/// Code points whose general category moved between 15.0 and 17.0.
#[rustfmt::skip]
pub(super) static RESTLESS_CATEGORY: &[(u32, u32)] = &[
    (0x295, 0x295), (0x1171E, 0x1171E),
];

/// Code points whose script extensions moved between 15.0 and 17.0. Plain scripts did not move.
#[rustfmt::skip]
pub(super) static RESTLESS_EXTENSIONS: &[(u32, u32)] = &[
    (0xB7, 0xB7), (0x2BC, 0x2BC), (0x2C7, 0x2C7), (0x2C9, 0x2CB), (0x2CD, 0x2CD), (0x2D7, 0x2D7), (0x2D9, 0x2D9),
    (0x300, 0x30E), (0x310, 0x311), (0x313, 0x313), (0x320, 0x320), (0x323, 0x325), (0x32D, 0x32E), (0x330, 0x331),
    (0x358, 0x358), (0x35E, 0x35E), (0x374, 0x375), (0x589, 0x589), (0x951, 0x952), (0x10FB, 0x10FB),
    (0x16EB, 0x16ED), (0x1CD3, 0x1CD3), (0x1CD5, 0x1CD8), (0x1CE2, 0x1CE2), (0x1CE9, 0x1CEB), (0x1CED, 0x1CED),
    (0x1CF2, 0x1CF2), (0x1DF8, 0x1DF8), (0x202F, 0x202F), (0x204F, 0x204F), (0x205A, 0x205A), (0x205D, 0x205D),
    (0x2E17, 0x2E17), (0x2E30, 0x2E31), (0x2E3C, 0x2E3C), (0x2E41, 0x2E41), (0x2FF0, 0x2FFB), (0x3001, 0x3002),
    (0x3008, 0x300B), (0xA830, 0xA835), (0xA838, 0xA838),
];

/// Code points whose binary properties moved between 15.0 and 17.0, `Extended_Pictographic` apart.
#[rustfmt::skip]
pub(super) static RESTLESS_BINARY: &[(u32, u32)] = &[
    (0x19B, 0x19B), (0x264, 0x264), (0x295, 0x295), (0x363, 0x36F), (0x5A2, 0x5A2), (0x5C5, 0x5C5), (0x5C7, 0x5C7),
    (0x836, 0x836), (0xA71, 0xA71), (0xAFB, 0xAFB), (0xCC0, 0xCC0), (0xCC7, 0xCC8), (0xCCA, 0xCCB), (0xE3A, 0xE3A),
    (0x1715, 0x1715), (0x1734, 0x1734), (0x17D4, 0x17D5), (0x1A60, 0x1A60), (0x1B3B, 0x1B3B), (0x1B3D, 0x1B3D),
    (0x1B43, 0x1B44), (0x1BAA, 0x1BAA), (0x1BE6, 0x1BE6), (0x1BF2, 0x1BF3), (0x1D9B, 0x1DBE), (0x1DD3, 0x1DE6),
    (0x200C, 0x200D), (0x2024, 0x2024), (0x226D, 0x226D), (0x2CF9, 0x2CFB), (0x30FB, 0x30FB), (0xA7D3, 0xA7D3),
    (0xA7D5, 0xA7D5), (0xA806, 0xA806), (0xA82C, 0xA82C), (0xA953, 0xA953), (0xA9C0, 0xA9C0), (0xFE12, 0xFE12),
    (0xFE15, 0xFE16), (0xFF65, 0xFF65), (0x10A38, 0x10A3A), (0x10A3F, 0x10A3F), (0x111C0, 0x111C0),
    (0x11235, 0x11235), (0x11237, 0x11237), (0x1133B, 0x1133B), (0x1134D, 0x1134D), (0x116B6, 0x116B6),
    (0x1171E, 0x1171E), (0x1193D, 0x1193D), (0x11F41, 0x11F42), (0x16FF0, 0x16FF1), (0x1D166, 0x1D166),
    (0x1D16D, 0x1D16D),
];

/// Code points whose `Extended_Pictographic` moved between 15.0 and 17.0.
#[rustfmt::skip]
pub(super) static RESTLESS_PICTOGRAPHIC: &[(u32, u32)] = &[
    (0x2388, 0x2388), (0x2605, 0x2605), (0x2607, 0x260D), (0x260F, 0x2610), (0x2612, 0x2612), (0x2616, 0x2617),
    (0x2619, 0x261C), (0x261E, 0x261F), (0x2621, 0x2621), (0x2624, 0x2625), (0x2627, 0x2629), (0x262B, 0x262D),
    (0x2630, 0x2637), (0x263B, 0x263F), (0x2641, 0x2641), (0x2643, 0x2647), (0x2654, 0x265E), (0x2661, 0x2662),
    (0x2664, 0x2664), (0x2667, 0x2667), (0x2669, 0x267A), (0x267C, 0x267D), (0x2680, 0x2685), (0x2690, 0x2691),
    (0x2698, 0x2698), (0x269A, 0x269A), (0x269D, 0x269F), (0x26A2, 0x26A6), (0x26A8, 0x26A9), (0x26AC, 0x26AF),
    (0x26B2, 0x26BC), (0x26BF, 0x26C3), (0x26C6, 0x26C7), (0x26C9, 0x26CD), (0x26D0, 0x26D0), (0x26D2, 0x26D2),
    (0x26D5, 0x26E8), (0x26EB, 0x26EF), (0x26F6, 0x26F6), (0x26FB, 0x26FC), (0x26FE, 0x2701), (0x2703, 0x2704),
    (0x270E, 0x270E), (0x2710, 0x2711), (0x2765, 0x2767), (0x1F000, 0x1F003), (0x1F005, 0x1F02B), (0x1F030, 0x1F093),
    (0x1F0A0, 0x1F0AE), (0x1F0B1, 0x1F0BF), (0x1F0C1, 0x1F0CE), (0x1F0D1, 0x1F0F5), (0x1F10D, 0x1F10F),
    (0x1F12F, 0x1F12F), (0x1F16C, 0x1F16F), (0x1F1AD, 0x1F1AD), (0x1F260, 0x1F265), (0x1F322, 0x1F323),
    (0x1F394, 0x1F395), (0x1F398, 0x1F398), (0x1F39C, 0x1F39D), (0x1F3F1, 0x1F3F2), (0x1F3F6, 0x1F3F6),
    (0x1F4FE, 0x1F4FE), (0x1F546, 0x1F548), (0x1F54F, 0x1F54F), (0x1F568, 0x1F56E), (0x1F571, 0x1F572),
    (0x1F57B, 0x1F586), (0x1F588, 0x1F589), (0x1F58E, 0x1F58F), (0x1F591, 0x1F594), (0x1F597, 0x1F5A3),
    (0x1F5A6, 0x1F5A7), (0x1F5A9, 0x1F5B0), (0x1F5B3, 0x1F5BB), (0x1F5BD, 0x1F5C1), (0x1F5C5, 0x1F5D0),
    (0x1F5D4, 0x1F5DB), (0x1F5DF, 0x1F5E0), (0x1F5E2, 0x1F5E2), (0x1F5E4, 0x1F5E7), (0x1F5E9, 0x1F5EE),
    (0x1F5F0, 0x1F5F2), (0x1F5F4, 0x1F5F9), (0x1F6C6, 0x1F6CA), (0x1F6D3, 0x1F6D4), (0x1F6E6, 0x1F6E8),
    (0x1F6EA, 0x1F6EA), (0x1F6F1, 0x1F6F2), (0x1F774, 0x1F776), (0x1F77B, 0x1F77F), (0x1F7D5, 0x1F7D9),
    (0x1F8B0, 0x1F8B1), (0x1FA00, 0x1FA53), (0x1FA60, 0x1FA6D),
];

/// Script names and short names, spelled as ECMAScript demands, that every version since 15.0 knows.
pub(super) static SCRIPTS: &str = "Adlam Adlm Ahom Anatolian_Hieroglyphs Hluw Arabic Arab Armenian Armn Avestan Avst Balinese Bali Bamum Bamu \
     Bassa_Vah Bass Batak Batk Bengali Beng Bhaiksuki Bhks Bopomofo Bopo Brahmi Brah Braille Brai Buginese Bugi \
     Buhid Buhd Canadian_Aboriginal Cans Carian Cari Caucasian_Albanian Aghb Chakma Cakm Cham Cherokee Cher \
     Chorasmian Chrs Common Zyyy Coptic Copt Qaac Cuneiform Xsux Cypriot Cprt Cypro_Minoan Cpmn Cyrillic Cyrl \
     Deseret Dsrt Devanagari Deva Dives_Akuru Diak Dogra Dogr Duployan Dupl Egyptian_Hieroglyphs Egyp Elbasan Elba \
     Elymaic Elym Ethiopic Ethi Georgian Geor Glagolitic Glag Gothic Goth Grantha Gran Greek Grek Gujarati Gujr \
     Gunjala_Gondi Gong Gurmukhi Guru Hani Han Hangul Hang Hanifi_Rohingya Rohg Hanunoo Hano Hatran Hatr Hebrew Hebr \
     Hiragana Hira Imperial_Aramaic Armi Inherited Qaai Zinh Inscriptional_Pahlavi Phli Inscriptional_Parthian Prti \
     Javanese Java Kaithi Kthi Kannada Knda Katakana Kana Kawi Kayah_Li Kali Kharoshthi Khar Khitan_Small_Script \
     Kits Khmer Khmr Khojki Khoj Khudawadi Sind Laoo Lao Latin Latn Lepcha Lepc Limbu Limb Linear_A Lina Linear_B \
     Linb Lisu Lycian Lyci Lydian Lydi Mahajani Mahj Makasar Maka Malayalam Mlym Mandaic Mand Manichaean Mani \
     Marchen Marc Masaram_Gondi Gonm Medefaidrin Medf Meetei_Mayek Mtei Mende_Kikakui Mend Meroitic_Cursive Merc \
     Meroitic_Hieroglyphs Mero Miao Plrd Modi Mongolian Mong Mroo Mro Multani Mult Myanmar Mymr Nabataean Nbat \
     Nag_Mundari Nagm Nandinagari Nand New_Tai_Lue Talu Newa Nkoo Nko Nushu Nshu Nyiakeng_Puachue_Hmong Hmnp Ogham \
     Ogam Ol_Chiki Olck Old_Hungarian Hung Old_Italic Ital Old_North_Arabian Narb Old_Permic Perm Old_Persian Xpeo \
     Old_Sogdian Sogo Old_South_Arabian Sarb Old_Turkic Orkh Old_Uyghur Ougr Oriya Orya Osage Osge Osmanya Osma \
     Pahawh_Hmong Hmng Palmyrene Palm Pau_Cin_Hau Pauc Phags_Pa Phag Phoenician Phnx Psalter_Pahlavi Phlp Rejang \
     Rjng Runic Runr Samaritan Samr Saurashtra Saur Sharada Shrd Shavian Shaw Siddham Sidd SignWriting Sgnw Sinhala \
     Sinh Sogdian Sogd Sora_Sompeng Sora Soyombo Soyo Sundanese Sund Syloti_Nagri Sylo Syriac Syrc Tagalog Tglg \
     Tagbanwa Tagb Tai_Le Tale Tai_Tham Lana Tai_Viet Tavt Takri Takr Tamil Taml Tangsa Tnsa Tangut Tang Telugu Telu \
     Thaana Thaa Thai Tibetan Tibt Tifinagh Tfng Tirhuta Tirh Toto Ugaritic Ugar Vaii Vai Vithkuqi Vith Wancho Wcho \
     Warang_Citi Wara Yezidi Yezi Yiii Yi Zanabazar_Square Zanb";

/// Script names that only some of the versions in use know.
pub(super) static NEWER_SCRIPTS: &str = "Garay Gara Gurung_Khema Gukh Kirat_Rai Krai Ol_Onal Onao Sunuwar Sunu Todhri Todr Tulu_Tigalari Tutg Unknown \
     Zzzz Sidetic Sidt Tolong_Siki Tols Beria_Erfe Berf Tai_Yo Tayo";

/// General categories: each line is one category, all its names.
pub(super) static CATEGORIES: &[&str] = &[
    "Cased_Letter LC",
    "Close_Punctuation Pe",
    "Connector_Punctuation Pc",
    "Control Cc cntrl",
    "Currency_Symbol Sc",
    "Dash_Punctuation Pd",
    "Decimal_Number Nd digit",
    "Enclosing_Mark Me",
    "Final_Punctuation Pf",
    "Format Cf",
    "Initial_Punctuation Pi",
    "Letter L",
    "Letter_Number Nl",
    "Line_Separator Zl",
    "Lowercase_Letter Ll",
    "Mark M Combining_Mark",
    "Math_Symbol Sm",
    "Modifier_Letter Lm",
    "Modifier_Symbol Sk",
    "Nonspacing_Mark Mn",
    "Number N",
    "Open_Punctuation Ps",
    "Other C",
    "Other_Letter Lo",
    "Other_Number No",
    "Other_Punctuation Po",
    "Other_Symbol So",
    "Paragraph_Separator Zp",
    "Private_Use Co",
    "Punctuation P punct",
    "Separator Z",
    "Space_Separator Zs",
    "Spacing_Mark Mc",
    "Surrogate Cs",
    "Symbol S",
    "Titlecase_Letter Lt",
    "Unassigned Cn",
    "Uppercase_Letter Lu",
];

/// Binary properties of ECMAScript 2023: each line is one property, all its names.
pub(super) static BINARY: &[&str] = &[
    "ASCII",
    "ASCII_Hex_Digit AHex",
    "Alphabetic Alpha",
    "Any",
    "Assigned",
    "Bidi_Control Bidi_C",
    "Bidi_Mirrored Bidi_M",
    "Case_Ignorable CI",
    "Cased",
    "Changes_When_Casefolded CWCF",
    "Changes_When_Casemapped CWCM",
    "Changes_When_Lowercased CWL",
    "Changes_When_NFKC_Casefolded CWKCF",
    "Changes_When_Titlecased CWT",
    "Changes_When_Uppercased CWU",
    "Dash",
    "Default_Ignorable_Code_Point DI",
    "Deprecated Dep",
    "Diacritic Dia",
    "Emoji",
    "Emoji_Component EComp",
    "Emoji_Modifier EMod",
    "Emoji_Modifier_Base EBase",
    "Emoji_Presentation EPres",
    "Extended_Pictographic ExtPict",
    "Extender Ext",
    "Grapheme_Base Gr_Base",
    "Grapheme_Extend Gr_Ext",
    "Hex_Digit Hex",
    "IDS_Binary_Operator IDSB",
    "IDS_Trinary_Operator IDST",
    "ID_Continue IDC",
    "ID_Start IDS",
    "Ideographic Ideo",
    "Join_Control Join_C",
    "Logical_Order_Exception LOE",
    "Lowercase Lower",
    "Math",
    "Noncharacter_Code_Point NChar",
    "Pattern_Syntax Pat_Syn",
    "Pattern_White_Space Pat_WS",
    "Quotation_Mark QMark",
    "Radical",
    "Regional_Indicator RI",
    "Sentence_Terminal STerm",
    "Soft_Dotted SD",
    "Terminal_Punctuation Term",
    "Unified_Ideograph UIdeo",
    "Uppercase Upper",
    "Variation_Selector VS",
    "White_Space space",
    "XID_Continue XIDC",
    "XID_Start XIDS",
];
