//! Node as the second implementation: one process is asked everything at once.
//!
//! Without Node on the machine the comparison says so loudly and is left out; with `VERIFICA_REQUIRE_ALL=1` it fails.
//! `VERIFICA_SEED` gives the generated cases of a run another start.

use std::io::Write;
use std::process::{Command, Stdio};

/// What a program for Node writes when it reads this; nothing where there is no Node. `what` is not compared then.
pub fn node(args: &[&str], input: String, what: &str) -> Option<String> {
    let spawned = Command::new("node").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            let required = std::env::var("VERIFICA_REQUIRE_ALL").as_deref() == Ok("1");
            assert!(!required, "node is required, to compare {what}: {error}");
            eprintln!("SKIPPED: node is not here ({error}), {what} were NOT compared with it");
            return None;
        }
    };
    let mut stdin = child.stdin.take().expect("stdin");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("node ends");
    writer.join().expect("writer").expect("written");
    assert!(output.status.success(), "node failed");
    Some(String::from_utf8(output.stdout).expect("utf-8"))
}

/// Where the generated cases of this run start: the same on every machine unless `VERIFICA_SEED` says otherwise.
#[allow(dead_code)]
pub fn seed(usual: u64) -> u64 {
    match number("VERIFICA_SEED") {
        // No seed may make a generator of zeros.
        Some(asked) => asked.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        None => usual,
    }
}

#[allow(dead_code)]
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
