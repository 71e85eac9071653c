//! Which addresses may be reached: one allow rule for the literals of a test, for what a name resolves to, and for the
//! peer of a connection (V20, V21, V79).
//!
//! The rule is an allow rule. An IPv4 address is public when it is outside the IANA special-purpose registry; an IPv6
//! address is public when it is inside 2000::/3 and outside its special ranges. An IPv4 address inside an IPv6 address
//! (mapped, compatible, NAT64, 6to4, Teredo, ISATAP) is decoded and judged too, also when the operator lists the outer
//! range. Nothing here resolves names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

/// What an operator allows beside the public internet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRule {
    /// Networks that are admitted although they are not public.
    pub allow: Vec<Network>,
    /// Admit loopback and private addresses: for a dry run on one's own machine, never in a daemon.
    pub allow_private: bool,
}

/// Whether an address is on the public internet; the error says what it is instead.
pub fn admissible(ip: IpAddr) -> Result<(), String> {
    AddressRule::default().judge(ip)
}

impl Network {
    /// `192.0.2.0/24`, `2001:db8::/32`, or one address. Bits beyond the prefix must be zero, so that a typing error does
    /// not widen a list.
    pub fn parse(text: &str) -> Result<Network, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr =
            address.parse().map_err(|_| format!("not a network: {text}; write 192.0.2.0/24 or 2001:db8::/32"))?;
        let widest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => widest,
            Some(digits) if !digits.is_empty() && digits.len() <= 3 && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits
                    .parse::<u8>()
                    .ok()
                    .filter(|n| *n <= widest)
                    .ok_or_else(|| format!("the prefix of {text} is over {widest}"))?
            }
            Some(_) => return Err(format!("not a network: {text}; the prefix is a number from 0 to {widest}")),
        };
        let network = Network { base, prefix };
        let (bits, mask) = (bits_of(base), network.mask());
        if bits & !mask != 0 {
            return Err(format!(
                "{text} has bits set beyond its prefix; write {}",
                Network { base: address_of(bits & mask, base.is_ipv4()), prefix }
            ));
        }
        Ok(network)
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        self.base.is_ipv4() == ip.is_ipv4() && (bits_of(ip) & self.mask()) == bits_of(self.base)
    }

    /// Whether it is wider than any network of one owner: more than 10.0.0.0/8 or fc00::/7.
    pub fn is_vast(&self) -> bool {
        self.prefix < if self.base.is_ipv4() { 8 } else { 7 }
    }

    fn mask(&self) -> u128 {
        let width: u32 = if self.base.is_ipv4() { 32 } else { 128 };
        let host_bits = width.saturating_sub(u32::from(self.prefix));
        let all = if width == 32 { u128::from(u32::MAX) } else { u128::MAX };
        all & u128::MAX.checked_shl(host_bits).unwrap_or(0)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Network::parse(text)
    }
}

impl AddressRule {
    /// Whether `ip` may be reached under this rule; the error says why not.
    pub fn judge(&self, ip: IpAddr) -> Result<(), String> {
        match ip {
            IpAddr::V4(v4) => self.judge_v4(v4),
            IpAddr::V6(v6) => self.judge_v6(v6),
        }
    }

    fn judge_v4(&self, ip: Ipv4Addr) -> Result<(), String> {
        if self.listed(IpAddr::V4(ip)) || (self.allow_private && (ip.is_loopback() || ip.is_private())) {
            return Ok(());
        }
        let bits = u32::from(ip);
        match V4_SPECIAL.iter().find(|(base, prefix, _)| within_v4(bits, *base, *prefix)) {
            Some((_, _, what)) => Err(format!("{ip} is not public: {what}")),
            None => Ok(()),
        }
    }

    fn judge_v6(&self, ip: Ipv6Addr) -> Result<(), String> {
        let own = self.allow_private && (ip == Ipv6Addr::LOCALHOST || within_v6(u128::from(ip), 0xfc00 << 112, 7));
        if own {
            return Ok(());
        }
        if let Some((v4, how)) = embedded(ip) {
            self.judge_v4(v4).map_err(|why| format!("{ip} carries an IPv4 address ({how}): {why}"))?;
        }
        if self.listed(IpAddr::V6(ip)) {
            return Ok(());
        }
        let bits = u128::from(ip);
        if let Some((_, _, what)) = V6_SPECIAL.iter().find(|(base, prefix, _)| within_v6(bits, *base, *prefix)) {
            return Err(format!("{ip} is not public: {what}"));
        }
        if !within_v6(bits, 0x2000 << 112, 3) {
            return Err(format!("{ip} is not public: outside 2000::/3"));
        }
        Ok(())
    }

    fn listed(&self, ip: IpAddr) -> bool {
        self.allow.iter().any(|network| network.contains(ip))
    }
}

/// The IPv4 address that a packet to `ip` may end at, and the form that carries it.
fn embedded(ip: Ipv6Addr) -> Option<(Ipv4Addr, &'static str)> {
    let bits = u128::from(ip);
    let low = Ipv4Addr::from(bits as u32);
    if within_v6(bits, 0xffff << 32, 96) {
        return Some((low, "mapped"));
    }
    if within_v6(bits, 0, 96) && bits > 1 {
        return Some((low, "compatible"));
    }
    if within_v6(bits, 0x0064_ff9b << 96, 96) {
        return Some((low, "NAT64"));
    }
    if within_v6(bits, 0x0064_ff9b_0001 << 80, 48) {
        return Some((low, "local NAT64"));
    }
    if within_v6(bits, 0xffff << 48, 96) {
        return Some((low, "translated"));
    }
    if within_v6(bits, 0x2002 << 112, 16) {
        return Some((Ipv4Addr::from((bits >> 80) as u32), "6to4"));
    }
    if within_v6(bits, 0x2001_0000 << 96, 32) {
        return Some((Ipv4Addr::from(!(bits as u32)), "Teredo"));
    }
    let interface = (bits >> 32) as u32;
    if matches!(interface, 0x0000_5efe | 0x0200_5efe) {
        return Some((low, "ISATAP"));
    }
    None
}

fn within_v4(bits: u32, base: u32, prefix: u32) -> bool {
    (bits ^ base) & u32::MAX.checked_shl(32 - prefix).unwrap_or(0) == 0
}

fn within_v6(bits: u128, base: u128, prefix: u32) -> bool {
    (bits ^ base) & u128::MAX.checked_shl(128 - prefix).unwrap_or(0) == 0
}

fn bits_of(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn address_of(bits: u128, v4: bool) -> IpAddr {
    if v4 { IpAddr::V4(Ipv4Addr::from(bits as u32)) } else { IpAddr::V6(Ipv6Addr::from(bits)) }
}

/// The IANA IPv4 special-purpose registry, with multicast beside it.
const V4_SPECIAL: &[(u32, u32, &str)] = &[
    (0x0000_0000, 8, "this network (0.0.0.0/8)"),
    (0x0a00_0000, 8, "private (10.0.0.0/8)"),
    (0x6440_0000, 10, "shared between carriers (100.64.0.0/10)"),
    (0x7f00_0000, 8, "loopback (127.0.0.0/8)"),
    (0xa9fe_0000, 16, "link-local (169.254.0.0/16)"),
    (0xac10_0000, 12, "private (172.16.0.0/12)"),
    (0xc000_0000, 24, "protocol assignments (192.0.0.0/24)"),
    (0xc000_0200, 24, "documentation (192.0.2.0/24)"),
    (0xc01f_c400, 24, "AS112 (192.31.196.0/24)"),
    (0xc034_c100, 24, "AMT (192.52.193.0/24)"),
    (0xc058_6300, 24, "6to4 relay (192.88.99.0/24)"),
    (0xc0a8_0000, 16, "private (192.168.0.0/16)"),
    (0xc0af_3000, 24, "AS112 (192.175.48.0/24)"),
    (0xc612_0000, 15, "benchmarking (198.18.0.0/15)"),
    (0xc633_6400, 24, "documentation (198.51.100.0/24)"),
    (0xcb00_7100, 24, "documentation (203.0.113.0/24)"),
    (0xe000_0000, 4, "multicast (224.0.0.0/4)"),
    (0xf000_0000, 4, "reserved (240.0.0.0/4)"),
];

/// What is special, inside 2000::/3 and outside it; the latter only so that the reason can say what it is.
const V6_SPECIAL: &[(u128, u32, &str)] = &[
    (0, 128, "unspecified (::)"),
    (1, 128, "loopback (::1)"),
    (0xffff << 32, 96, "IPv4-mapped (::ffff:0:0/96)"),
    (0x0064_ff9b << 96, 96, "NAT64 (64:ff9b::/96)"),
    (0x0064_ff9b_0001 << 80, 48, "local NAT64 (64:ff9b:1::/48)"),
    (0x0100 << 112, 64, "discard (100::/64)"),
    (0x2001 << 112, 23, "protocol assignments (2001::/23)"),
    (0x2001_0db8 << 96, 32, "documentation (2001:db8::/32)"),
    (0x2002 << 112, 16, "6to4 (2002::/16)"),
    (0x2620_004f_8000 << 80, 48, "AS112 (2620:4f:8000::/48)"),
    (0x3fff << 112, 20, "documentation (3fff::/20)"),
    (0x5f00 << 112, 16, "segment routing (5f00::/16)"),
    (0xfc00 << 112, 7, "unique local (fc00::/7)"),
    (0xfe80 << 112, 10, "link-local (fe80::/10)"),
    (0xfec0 << 112, 10, "site-local (fec0::/10)"),
    (0xff00 << 112, 8, "multicast (ff00::/8)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn rule(allow: &[&str], allow_private: bool) -> AddressRule {
        AddressRule { allow: allow.iter().map(|n| Network::parse(n).expect("a network")).collect(), allow_private }
    }

    #[test]
    fn every_special_v4_range_is_refused_at_both_ends_and_its_neighbours_are_not() {
        // first, last, and whether the address before and after are public
        let table = [
            ("0.0.0.0", "0.255.255.255", None, Some("1.0.0.0")),
            ("10.0.0.0", "10.255.255.255", Some("9.255.255.255"), Some("11.0.0.0")),
            ("100.64.0.0", "100.127.255.255", Some("100.63.255.255"), Some("100.128.0.0")),
            ("127.0.0.0", "127.255.255.255", Some("126.255.255.255"), Some("128.0.0.0")),
            ("169.254.0.0", "169.254.255.255", Some("169.253.255.255"), Some("169.255.0.0")),
            ("172.16.0.0", "172.31.255.255", Some("172.15.255.255"), Some("172.32.0.0")),
            ("192.0.0.0", "192.0.0.255", Some("191.255.255.255"), Some("192.0.1.0")),
            ("192.0.2.0", "192.0.2.255", Some("192.0.1.255"), Some("192.0.3.0")),
            ("192.31.196.0", "192.31.196.255", Some("192.31.195.255"), Some("192.31.197.0")),
            ("192.52.193.0", "192.52.193.255", Some("192.52.192.255"), Some("192.52.194.0")),
            ("192.88.99.0", "192.88.99.255", Some("192.88.98.255"), Some("192.88.100.0")),
            ("192.168.0.0", "192.168.255.255", Some("192.167.255.255"), Some("192.169.0.0")),
            ("192.175.48.0", "192.175.48.255", Some("192.175.47.255"), Some("192.175.49.0")),
            ("198.18.0.0", "198.19.255.255", Some("198.17.255.255"), Some("198.20.0.0")),
            ("198.51.100.0", "198.51.100.255", Some("198.51.99.255"), Some("198.51.101.0")),
            ("203.0.113.0", "203.0.113.255", Some("203.0.112.255"), Some("203.0.114.0")),
            ("224.0.0.0", "255.255.255.255", Some("223.255.255.255"), None),
        ];
        for (first, last, before, after) in table {
            assert!(admissible(ip(first)).is_err(), "{first}");
            assert!(admissible(ip(last)).is_err(), "{last}");
            for public in [before, after].into_iter().flatten() {
                assert_eq!(admissible(ip(public)), Ok(()), "{public}");
            }
        }
    }

    #[test]
    fn v6_is_public_only_inside_2000_3_and_outside_its_special_ranges() {
        for public in [
            "2000::",
            "2001:200::",
            "2001:db7:ffff::1",
            "2001:db9::",
            "2003::1",
            "2606:4700::1111",
            "2620:4f:8001::",
            "3ffe::1",
            "3fff:1000::",
            "2a00:1450:4001::1",
        ] {
            assert_eq!(admissible(ip(public)), Ok(()), "{public}");
        }
        for special in [
            "::",
            "::1",
            "1fff:ffff::",
            "4000::",
            "2001::1",
            "2001:1ff:ffff::",
            "2001:db8::",
            "2001:db8:ffff:ffff::1",
            "2002::1",
            "2002:808:808::1",
            "2620:4f:8000::1",
            "3fff::",
            "3fff:fff::",
            "5f00::1",
            "100::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "64:ff9b::808:808",
            "64:ff9b:1::808:808",
            "::ffff:0:808:808",
        ] {
            assert!(admissible(ip(special)).is_err(), "{special}");
        }
    }

    #[test]
    fn an_embedded_private_v4_is_refused_even_where_the_outer_range_is_listed() {
        let listed = rule(
            &[
                "64:ff9b::/96",
                "2002::/16",
                "2001::/32",
                "::ffff:0:0/96",
                "64:ff9b:1::/48",
                "::/96",
                "::ffff:0:0:0/96",
                "2606:4700::/32",
            ],
            false,
        );
        for open in [
            "64:ff9b::808:808",
            "2002:808:808::1",
            "::ffff:8.8.8.8",
            "2001:0:1:2:3:4:f7f7:f7f7",
            "64:ff9b:1::808:808",
            "::8.8.8.8",
            "::ffff:0:808:808",
            "2606:4700::5efe:808:808",
        ] {
            assert_eq!(listed.judge(ip(open)), Ok(()), "{open}");
        }
        for inner in [
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::ffff:169.254.169.254",
            "2001:0:1:2:3:4:5601:5601",
            "64:ff9b:1::7f00:1",
            "::10.0.0.1",
            "::ffff:0:7f00:1",
            "2606:4700::5efe:a00:1",
            "2606:4700::200:5efe:a00:1",
        ] {
            let why = listed.judge(ip(inner)).expect_err(inner);
            assert!(why.contains("carries an IPv4 address"), "{why}");
        }
    }

    #[test]
    fn an_operator_can_list_networks_and_a_dry_run_can_open_its_own_machine() {
        let listed = rule(&["127.0.0.0/8", "fd00:1::/32"], false);
        assert_eq!(listed.judge(ip("127.0.0.1")), Ok(()));
        assert_eq!(listed.judge(ip("fd00:1::5")), Ok(()));
        assert!(listed.judge(ip("10.0.0.1")).is_err());
        assert!(listed.judge(ip("::1")).is_err());
        let own = rule(&[], true);
        for open in ["127.0.0.1", "10.1.2.3", "192.168.1.1", "172.16.0.1", "::1", "fd00::1", "8.8.8.8"] {
            assert_eq!(own.judge(ip(open)), Ok(()), "{open}");
        }
        for shut in ["169.254.169.254", "0.0.0.0", "224.0.0.1", "fe80::1", "ff02::1", "::", "198.18.0.1"] {
            assert!(own.judge(ip(shut)).is_err(), "{shut}");
        }
    }

    #[test]
    fn networks_parse_strictly_and_contain_their_own_family_only() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "ffff::1", "1.2.3.4"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("::1/128", "::1", "::2"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
        ] {
            let network = Network::parse(text).expect(text);
            assert!(network.contains(ip(inside)) && !network.contains(ip(outside)), "{text}");
            assert_eq!(Network::parse(&network.to_string()), Ok(network));
        }
        for bad in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/ 8",
            "10.0.0.1/8",
            "2001:db8::1/32",
            "10.0.0/8",
            "example.com/8",
            "10.0.0.0/8/8",
            "10.0.0.0/256",
        ] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
    }
}
