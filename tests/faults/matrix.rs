//! Every write, flush, truncation, opening and removal of a scripted session, made to fail one after the other.

use super::books::{Ended, audit};
use super::victim::{Base, Told, Victim, every_point, steps, strace_works};
use std::time::Instant;

const LETTERS: usize = 2;

/// What the faults are, on which calls, and in which steps they are visited when time is short.
const FAULTS: &[(&str, &str, usize)] = &[
    ("pwrite64", "signal=KILL", 53),
    ("pwrite64", "error=EIO", 61),
    ("pwrite64", "error=ENOSPC", 59),
    ("fsync", "signal=KILL", 7),
    ("fsync", "error=EIO", 6),
    ("ftruncate", "signal=KILL", 1),
    ("ftruncate", "error=EIO", 1),
    ("unlink", "signal=KILL", 1),
    ("unlink", "error=EIO", 1),
    ("rename", "error=EIO", 1),
];

#[test]
fn whichever_system_call_fails_nothing_acknowledged_is_lost_and_repeating_mends_it() {
    if !strace_works() {
        return;
    }
    let base = Base::new();
    let wanted = without_a_fault(&base);
    let begun = Instant::now();
    let (mut points, mut killed, mut ended, mut refused) = (0, 0, 0, 0);
    for (call, fault, step) in FAULTS {
        let step = if every_point() { 1 } else { *step };
        let mut visited = 0;
        for nth in (1..2_000).step_by(step) {
            let what = format!("{call}:{fault}:when={nth}");
            let Some((told, end)) = one(&base, call, &what, &wanted) else { break };
            visited += 1;
            match end {
                None => killed += 1,
                Some(0) => {}
                Some(_) => ended += 1,
            }
            refused += usize::from(told.unavailable > 0);
        }
        println!("{call} {fault}: {visited} points");
        points += visited;
    }
    println!(
        "{points} faults in {:.1?}: {killed} killed, {ended} ended by themselves, {refused} answered 503",
        begun.elapsed()
    );
    assert!(points > 15 && killed > 3 && ended > 2 && refused > 0, "the faults hit nothing");
}

/// The state that every repaired house must come to.
fn without_a_fault(base: &Base) -> Ended {
    let mut victim = base.victim();
    let told = finish(&mut victim);
    audit(&victim.store(), &told, "without a fault")
}

/// One session with one fault; `None` when the session is over before the fault is reached.
fn one(base: &Base, call: &str, what: &str, wanted: &Ended) -> Option<(Told, Option<i32>)> {
    let mut victim = base.victim();
    let log = victim.data().with_file_name("calls");
    let words = ["strace", "-f", "-q", "-o", &log.display().to_string(), "-e"].map(str::to_owned);
    let words = [words.as_slice(), &[format!("trace={call}"), "-e".into(), format!("inject={what}")]].concat();
    victim.start_with(&words);
    let told = if victim.ready() { victim.session(LETTERS, 2) } else { Told::default() };
    let end = match victim.ended() {
        Some(code) => code,
        None => victim.stop(),
    };
    let calls = std::fs::read_to_string(&log).unwrap_or_default();
    let killed = calls.contains("killed by SIGKILL");
    if !killed && !calls.contains("(INJECTED)") {
        return None;
    }
    audit(&victim.store(), &told, what);
    let again = finish(&mut victim);
    let mut all = told.clone();
    all.acked.extend(again.acked);
    assert_eq!(&audit(&victim.store(), &all, what), wanted, "{what}: repeating everything does not mend it");
    Some((told, if killed { None } else { Some(end.unwrap_or(1)) }))
}

/// The same client asks for everything until it has it, and the house is stopped when its queue is empty.
fn finish(victim: &mut Victim) -> Told {
    victim.start();
    assert!(victim.ready(), "the house comes up after the fault");
    let told = victim.session(LETTERS, 40);
    assert_eq!(told.acked.len(), steps(LETTERS).len(), "not everything is acknowledged: {told:?}");
    let begun = Instant::now();
    // The letter that goes through the queue; what waits for 2099 stays.
    while begun.elapsed().as_secs() < 30 {
        let (_, mail) = victim.as_agent("ana", "GET", "/mailbox/ana", b"").expect("the mailbox");
        let letters = mail["messages"].as_array().cloned().unwrap_or_default();
        if letters.iter().any(|letter| letter["envelope"]["id"] == "envelope-queued") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(victim.stop(), Some(0), "the house ends in order");
    told
}
