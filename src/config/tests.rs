//! What an operator may write, and what is said of what he may not.

use super::*;

fn read_text(text: &str) -> Result<Config, Vec<Diagnostic>> {
    parse(text, &BTreeMap::new(), Path::new("/etc/house")).map(|(config, _)| config)
}

fn with_env(text: &str, env: &[(&str, &str)]) -> Result<(Config, Vec<Diagnostic>), Vec<Diagnostic>> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    parse(text, &env, Path::new("/etc/house"))
}

fn minimal() -> Config {
    read_text("domain = \"mar.example\"").expect("minimal")
}

#[test]
fn the_template_is_the_defaults() {
    let domain = Domain::parse("mar.example").expect("domain");
    let text = template(&domain, "https://mar.example", &minimal().listen);
    assert_eq!(read_text(&text), Ok(minimal()));
    assert!(text.lines().all(|line| line.len() <= 120));
}

#[test]
fn defaults_are_the_limits_and_the_settings_default() {
    let config = minimal();
    assert_eq!(config.public_url, "https://mar.example");
    assert_eq!(config.data_dir, Path::new("/etc/house/data"));
    let settings = config.settings(Capabilities::network());
    let default = Settings::default();
    assert_eq!(format!("{settings:?}"), format!("{default:?}"));
    // Incident 20: a gift made stamps free, and the shortest names were squatted first.
    assert_eq!((settings.welcome, settings.min_name_length), (0, 4));
}

#[test]
fn every_fault_is_reported_at_once_with_its_place() {
    let text = "domian = \"mar.example\"\nlisten = \"nowhere\"\n[mail]\nretry_base = \"soon\"\nmax_bytes = -1\n[probes]\ntimeout = \"1s\"\n";
    let faults = read_text(text).expect_err("faults");
    let shown: Vec<_> = faults
        .into_iter()
        .map(|f| {
            let at = match f.at {
                At::Span(span) => Some(position(text, span.start)),
                _ => None,
            };
            (at, f.message, f.hint)
        })
        .collect();
    assert_eq!(shown[0].1, "domain is missing");
    assert_eq!(shown[1], (Some((1, 1)), "unknown key domian".into(), Some("did you mean domain".into())));
    assert_eq!(shown[2].0, Some((2, 10)));
    assert!(shown[2].1.starts_with("listen: \"nowhere\""), "{shown:?}");
    assert_eq!(shown[3].0, Some((4, 14)));
    assert_eq!(shown[4].1, "mail.max_bytes: -1 is out of range; allowed: 1024 to 2097152");
    assert_eq!(shown[5], (Some((6, 2)), "unknown key probes".into(), Some("did you mean probe".into())));
    assert_eq!(shown.len(), 6);
}

/// Every key of the file with a value that it does not take: one fault, at the value, that says what would do.
#[test]
fn every_key_says_what_is_wrong_with_its_value_and_where() {
    let wrong = [
        ("", "public_url = \"mail.mar.example\"", "is not a URL"),
        ("", "public_url = \"https://a.b/x\"", "nothing after it"),
        ("", "listen = \"localhost:4040\"", "write 127.0.0.1:4040"),
        ("", "data_dir = \"\"", "the path is empty"),
        ("", "domain_key_file = 3", "expected a text"),
        ("", "admin_token_file = \"\"", "the path is empty"),
        ("", "trusted_proxies = \"10.0.0.0/8\"", "expected a list such as"),
        ("", "trusted_proxies = [\"10.0.0.1/8\"]", "write 10.0.0.0/8"),
        ("registration", "mode = \"opn\"", "did you mean \"open\""),
        ("registration", "per_minute = 0", "allowed: 1 to"),
        ("registration", "min_name_length = 65", "allowed: 1 to 64"),
        ("mail", "rate_per_minute = 1.5", "expected a whole number"),
        ("mail", "max_bytes = 1023", "allowed: 1024 to"),
        ("mail", "retry_base = \"0s\"", "allowed: 1ms to"),
        ("mail", "retry_base = \"2m\"", "shorter than mail.retry_base, 2m"),
        ("mail", "retry_max = \"1\"", "with ms, s, m, h or d"),
        ("mail", "give_up = \"31d\"", "to 30d"),
        ("mail", "require_relay = \"true\"", "expected true or false"),
        ("mail", "outbound = \"seal\"", "did you mean \"sealed\""),
        ("libro", "fee_bps = 10001", "allowed: 0 to 10000"),
        ("libro", "welcome = 9007199254740992", "allowed: 0 to"),
        ("libro", "reclaim_grace = \"366d\"", "to 365d"),
        ("libro", "review_window = 72", "expected a duration"),
        ("arbiter", "enabled = 1", "expected true or false"),
        ("arbiter", "elsewhere = \"no\"", "expected true or false"),
        ("arbiter", "policy = \"defualt\"", "did you mean \"default\""),
        ("arbiter", "tick = \"5ms\"", "allowed: 10ms to 1h"),
        ("arbiter", "probe_slots = 0", "allowed: 1 to"),
        ("arbiter", "job_policy = \"lax\"", "default, strict, toolchain"),
        ("arbiter", "job_slots = 257", "allowed: 1 to 256"),
        ("arbiter", "confirm_after = \"0s\"", "allowed: 1ms to"),
        ("arbiter", "on_undecided_at_expiry = \"pay\"", "hold, expire, refund"),
        ("arbiter", "on_undecided_at_expiry = \"refund\"", "needs arbiter.control_url"),
        ("arbiter", "control_url = \"http://x.example/\"", "does not start with https://"),
        ("arbiter", "evidence_keep = \"1s\"", "allowed: 1d to"),
        ("probe", "timeout = 10", "expected a duration"),
        ("probe", "per_host_per_minute = 0", "allowed: 1 to"),
        ("probe", "allow_networks = [\"10.0.0.0/33\"]", "over 32"),
        ("probe", "extra_ca = \"ca.pem\"", "expected a list such as"),
        ("probe", "resolve = [\"a\"]", "expected a table"),
        ("hosts.\"beta.example\"", "url = \"x\"", "is not a URL"),
        ("store", "kind = \"postgre\"", "is none of"),
    ];
    for (section, line, part) in wrong {
        let heading = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
        let text = format!("domain = \"a.b\"\n{heading}{line}\n");
        let faults = read_text(&text).expect_err(line);
        let [fault] = &faults[..] else { panic!("{line}: {faults:?}") };
        let At::Span(span) = &fault.at else { panic!("{line}: no place: {fault:?}") };
        let value = (text.lines().count(), line.find("= ").expect("a value") + 3);
        assert_eq!(position(&text, span.start), value, "{line}: {fault:?}");
        assert!(fault.message.contains(part), "{line}: {fault:?}");
    }
}

/// What a section lacks is said at its heading, and only when it is not there.
#[test]
fn what_a_section_lacks_is_said_at_its_heading() {
    let said = |text: &str| {
        let whole = format!("domain = \"a.b\"\n{text}\n");
        let faults = read_text(&whole).expect_err(text);
        let placed = faults.into_iter().map(|fault| match fault.at {
            At::Span(span) => (position(&whole, span.start).0, fault.message, fault.hint),
            other => panic!("{text}: {other:?}"),
        });
        placed.collect::<Vec<_>>()
    };
    for text in ["[tls]", "[tls]\ncert = \"c.pem\"", "[tls]\nkey = \"k.pem\"", "[hosts.\"b.example\"]"] {
        let faults = said(text);
        let [(2, message, Some(_))] = &faults[..] else { panic!("{text}: {faults:?}") };
        assert!(message.contains("needs"), "{text}: {message}");
    }
    for text in ["[tls]\ncert = 3\nkey = \"k.pem\"", "[hosts.\"b.example\"]\nurl = 3"] {
        let faults = said(text);
        let [(3, message, None)] = &faults[..] else { panic!("{text}: {faults:?}") };
        assert!(message.contains("expected a text"), "{text}: {message}");
    }
    let faults = read_text("domain = \"MAR\"\n").expect_err("upper case");
    assert_eq!(faults[0].message, "domain: \"MAR\": a domain is lower-case letters, digits, dots and hyphens");
}

#[test]
fn a_broken_text_reports_every_syntax_error_and_goes_on() {
    let faults = read_text("domain = \"mar.example\n[mail\nrequire_relay = maybe\n").expect_err("faults");
    assert!(faults.iter().filter(|f| f.message.starts_with("not TOML")).count() >= 2, "{faults:?}");
}

#[test]
fn the_environment_wins_and_is_typed_by_the_key() {
    let (config, warnings) = with_env(
        "domain = \"mar.example\"\n[libro]\nfee_bps = 1000\n",
        &[
            ("VERIFICA_LIBRO__FEE_BPS", "500"),
            ("VERIFICA_MAIL__REQUIRE_RELAY", "true"),
            ("VERIFICA_PROBE__ALLOW_NETWORKS", "127.0.0.0/8, ::1"),
            ("VERIFICA_PROBE__RESOLVE", "{ \"a.example:443\" = \"127.0.0.1:8443\" }"),
            ("VERIFICA_HOSTS__beta.example__URL", "http://127.0.0.1:4002"),
            ("VERIFICA_LISTEN", "127.0.0.1:9"),
            ("VERIFICA_CONFIG", "x"),
            ("UNRELATED", "1"),
        ],
    )
    .expect("config");
    assert_eq!((config.libro.fee_bps, config.mail.require_relay), (500, true));
    assert_eq!(config.probe.allow_networks.len(), 2);
    let to = SocketAddr::from(([127, 0, 0, 1], 8443));
    assert_eq!(config.probe.resolve, [Override { host: "a.example".into(), port: 443, to }]);
    assert_eq!(config.hosts.len(), 1);
    assert_eq!(config.listen.port(), 9);
    assert_eq!(warnings, []);
}

#[test]
fn a_misspelt_variable_is_a_fault_inside_a_section_and_a_warning_outside() {
    let faults = with_env("domain = \"a.b\"", &[("VERIFICA_LIBRO__FEE_BP", "1")]).expect_err("fault");
    assert_eq!(faults[0].hint.as_deref(), Some("did you mean libro.fee_bps"));
    assert_eq!(faults[0].at, At::Env("VERIFICA_LIBRO__FEE_BP".into()));
    let (_, warnings) = with_env("domain = \"a.b\"", &[("VERIFICA_PORT", "tcp://10.0.0.1:4040")]).expect("config");
    assert_eq!(warnings.len(), 1);
}

#[test]
fn bounds_hold_at_the_limit_and_not_beyond() {
    let fee = |n: u64| read_text(&format!("domain = \"a.b\"\n[libro]\nfee_bps = {n}\n")).is_ok();
    assert!(fee(0) && fee(limits::BPS_WHOLE) && !fee(limits::BPS_WHOLE + 1));
    let name = |n: usize| read_text(&format!("domain = \"a.b\"\n[registration]\nmin_name_length = {n}\n")).is_ok();
    assert!(!name(0) && name(1) && name(limits::ADDRESS_LOCAL_MAX) && !name(limits::ADDRESS_LOCAL_MAX + 1));
}

#[test]
fn what_this_version_does_not_serve_is_refused_by_name() {
    for text in [
        "[tareas]\nper_day = 1",
        "[metrics]\nlisten = \"127.0.0.1:1\"",
        "[store]\nkind = \"postgres\"",
        "[arbiter]\npolicy = \"strict\"",
    ] {
        assert!(read_text(&format!("domain = \"a.b\"\n{text}\n")).is_err(), "{text}");
    }
}

#[test]
fn jobs_have_slots_and_a_policy_and_a_policy_is_a_name_or_a_path() {
    let with_jobs = "domain = \"a.b\"\n[arbiter]\njob_slots = 3\njob_policy = \"strict\"\n";
    let (config, _) = with_env(with_jobs, &[]).expect("read");
    assert_eq!((config.arbiter.job_slots, config.arbiter.job_policy.as_str()), (3, "strict"));
    assert_eq!(config.job_policy().map(|policy| policy.name), Some("strict".to_owned()));
    for bad in ["job_slots = 0", "job_slots = 257", "job_policy = \"lax\""] {
        assert!(with_env(&format!("domain = \"a.b\"\n[arbiter]\n{bad}\n"), &[]).is_err(), "{bad}");
    }
    let mut config = read_text("domain = \"a.b\"\n[arbiter]\npolicy = \"./slow.toml\"\n").expect("read");
    assert!(config.arbiter.policy.ends_with("slow.toml") && config.arbiter.policy.len() > "./slow.toml".len());
    let slow = ProbePolicy { name: "slow".into(), confirm_after_ms: 9_000, ..ProbePolicy::default() };
    config.arbiter.policy_file = Some(slow.clone());
    assert_eq!(config.policy(), slow);
    config.arbiter.confirm_after_ms = Some(1_000);
    assert_eq!(config.policy(), ProbePolicy { confirm_after_ms: 1_000, ..slow });
}

#[test]
fn house_urls_are_a_scheme_a_host_and_a_port() {
    assert_eq!(house_url("https://mail.mar.example/").as_deref(), Ok("https://mail.mar.example"));
    assert_eq!(house_url("http://127.0.0.1:4040").as_deref(), Ok("http://127.0.0.1:4040"));
    for bad in
        ["mail.mar.example", "ftp://a.b", "https://a.b/x", "https://u@a.b", "https://a.b?x", "https://a.b/#f", ""]
    {
        assert!(house_url(bad).is_err(), "{bad}");
    }
    assert_eq!(host_of("https://a.b:443").as_deref(), Some("a.b"));
    assert_eq!(host_of("http://127.0.0.1:4040").as_deref(), Some("127.0.0.1:4040"));
}

#[test]
fn tls_needs_both_files_and_hosts_need_a_url() {
    assert!(read_text("domain = \"a.b\"\n[tls]\ncert = \"c.pem\"\n").is_err());
    assert!(read_text("domain = \"a.b\"\n[hosts.\"c.d\"]\nsig = \"x\"\n").is_err());
    let config = read_text("domain = \"a.b\"\n[tls]\ncert = \"c.pem\"\nkey = \"/k.pem\"\n").expect("config");
    assert_eq!(config.tls, Some(Tls { cert: "/etc/house/c.pem".into(), key: "/k.pem".into() }));
}

/// Whatever is written, parsing ends with a configuration or with faults that have a place in the text.
#[test]
fn damaged_texts_are_faults_and_never_more() {
    let domain = Domain::parse("mar.example").expect("domain");
    let whole = template(&domain, "https://mar.example", &minimal().listen).replace("# ", "");
    let mut ids = crate::ids::Ids::from_seed([3; 32]);
    for _ in 0..1_500 {
        let mut text: Vec<char> = whole.chars().collect();
        for _ in 0..1 + ids.per_mille() % 4 {
            if text.is_empty() {
                break;
            }
            let at = (ids.per_mille() as usize * 1_000 + ids.per_mille() as usize) % text.len();
            match ids.per_mille() % 4 {
                0 => drop(text.remove(at)),
                1 => text.insert(at, ['"', '[', '=', '\n', 'é', '0', '\u{0}'][ids.per_mille() as usize % 7]),
                2 => text.truncate(at.max(1)),
                _ => {
                    let other = (at + 1) % text.len();
                    text.swap(at, other);
                }
            }
        }
        let text: String = text.into_iter().collect();
        if let Err(faults) = read_text(&text) {
            assert!(faults.iter().any(|fault| fault.level == Level::Error));
            for fault in faults {
                let placed = match fault.at {
                    At::Span(span) => span.start <= span.end && span.end <= text.len(),
                    At::Whole => true,
                    At::Env(_) => false,
                };
                assert!(placed, "{text}");
            }
        }
    }
}

#[test]
fn a_refund_for_want_of_an_answer_needs_a_page_to_compare_with() {
    let read = |more: &str| read_text(&format!("domain = \"a.b\"\n[arbiter]\n{more}\n"));
    assert!(read("on_undecided_at_expiry = \"refund\"").is_err());
    assert!(read("on_undecided_at_expiry = \"refund\"\ncontrol_url = \"http://a.example/\"").is_err());
    let config = read("on_undecided_at_expiry = \"refund\"\ncontrol_url = \"https://a.example/up\"").expect("read");
    assert_eq!(config.arbiter.on_undecided_at_expiry, OnUndecided::Refund);
    assert_eq!(config.arbiter.control_url.as_deref(), Some("https://a.example/up"));
}

#[test]
fn proxies_are_networks_and_a_promise_to_seal_is_a_word() {
    let of = |text: &str| read_text(&format!("domain = \"mar.example\"\n{text}"));
    assert!(minimal().trusted_proxies.is_empty() && !minimal().mail.outbound_sealed);
    let config = of("trusted_proxies = [\"10.0.0.7/32\", \"2001:db8::/32\"]").expect("networks");
    assert_eq!(config.trusted_proxies.len(), 2);
    assert!(of("trusted_proxies = [\"anywhere\"]").is_err());
    let many = |n: usize| format!("trusted_proxies = [{}]", vec!["\"10.0.0.7\""; n].join(", "));
    assert!(of(&many(limits::TRUSTED_PROXIES_MAX)).is_ok());
    assert!(of(&many(limits::TRUSTED_PROXIES_MAX + 1)).is_err());
    assert!(of("trusted_proxies = [\"0.0.0.0/0\"]").is_err(), "everybody is no proxy");
    assert!(of("trusted_proxies = [\"10.0.0.0/8\", \"fc00::/7\"]").is_ok());
    assert!(of("[mail]\noutbound = \"sealed\"").expect("sealed").mail.outbound_sealed);
    assert!(of("[mail]\noutbound = \"open\"").is_err());
}

#[test]
fn what_disarms_a_rule_is_said_aloud() {
    let warned = |text: &str| {
        let text = format!("domain = \"mar.example\"\n{text}");
        let (_, warnings) = parse(&text, &BTreeMap::new(), Path::new("/srv")).expect("config");
        assert!(warnings.iter().all(|warning| warning.level == Level::Warning && warning.hint.is_some()));
        warnings.iter().map(|warning| warning.message.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(warned("[libro]\nreview_window = \"1ms\"\n[probe]\nallow_networks = [\"127.0.0.0/8\"]"), "");
    assert!(warned("[libro]\nreview_window = \"0h\"").contains("silence pays at once"));
    for vast in ["0.0.0.0/0", "::/0", "128.0.0.0/1", "fc00::/6"] {
        assert!(warned(&format!("[probe]\nallow_networks = [\"{vast}\"]")).contains(vast));
    }
}
