//! Power that goes away: the writes and flushes of a real session are recorded with their bytes, and every disk is built
//! that a cut may leave behind. What was flushed is there; of what came later nothing, all, some, or torn pieces are.

use super::books::audit;
use super::victim::{Base, Told, copy, every_point, strace_works};
use std::collections::BTreeMap;
use std::path::Path;
use verifica::ids::Ids;

const LETTERS: usize = 12;
const SECTOR: usize = 512;

#[derive(Clone, Debug)]
enum Call {
    Write { at: usize, bytes: Vec<u8> },
    Truncate { to: usize },
    Flush,
}

/// One call, the file it concerns, and when it began.
struct Recorded {
    at: f64,
    file: String,
    call: Call,
}

#[test]
fn whenever_the_power_goes_what_was_acknowledged_is_on_the_disk() {
    if !strace_works() {
        return;
    }
    let base = Base::new();
    let mut victim = base.victim();
    let before = tempfile::tempdir().expect("a folder");
    copy(&victim.data(), before.path());
    let log = victim.data().with_file_name("calls");
    let calls = "trace=pwrite64,write,fsync,fdatasync,ftruncate";
    let words = ["strace", "-f", "-qq", "--seccomp-bpf", "-ttt", "-y", "-xx", "-s", "1000000", "-e", calls, "-o"];
    let words: Vec<String> = words.iter().map(ToString::to_string).chain([log.display().to_string()]).collect();
    victim.start_with(&words);
    assert!(victim.ready(), "the house comes up");
    let told = victim.session(LETTERS, 1);
    assert_eq!(victim.stop(), Some(0), "the house ends in order");
    let recorded = read(&std::fs::read_to_string(&log).expect("the log"));
    let flushes = recorded.iter().filter(|r| matches!(r.call, Call::Flush)).count();
    assert!(told.acked.len() > LETTERS && flushes > LETTERS, "{} acknowledged, {flushes} flushes", told.acked.len());

    let mut ids = Ids::from_seed([5; 32]);
    let (mut cuts, mut torn, mut unflushed) = (0, 0, 0);
    let step = if every_point() { 1 } else { (recorded.len() / 70).max(1) };
    for cut in (0..=recorded.len()).step_by(step) {
        let acked = told.acked.iter().filter(|(_, at)| recorded.get(cut).is_none_or(|next| *at <= next.at));
        let told = Told { acked: acked.cloned().collect(), ..Told::default() };
        let variants: &[Lost] = &[Lost::All, Lost::Nothing, Lost::Some, Lost::Torn];
        for lost in variants {
            let folder = tempfile::tempdir().expect("a folder");
            let pending = disk(before.path(), folder.path(), &recorded[..cut], *lost, &mut ids);
            if pending == 0 && *lost != Lost::All {
                continue;
            }
            unflushed += usize::from(pending > 0);
            torn += usize::from(*lost == Lost::Torn);
            let what = format!("cut after call {cut} of {}, {pending} unflushed, {lost:?} lost", recorded.len());
            audit(&folder.path().join("house.db"), &told, &what);
            cuts += 1;
        }
    }
    println!("{cuts} power cuts over {} calls; {unflushed} with unflushed writes, {torn} torn", recorded.len());
    assert!(cuts > 60 && torn > 10, "{cuts} cuts, {torn} torn");
    the_program_goes_on(&base, before.path(), &recorded, &told, &mut ids);
}

/// The real program starts on some of these disks, and the same client gets everything that it asks for.
fn the_program_goes_on(base: &Base, before: &Path, recorded: &[Recorded], told: &Told, ids: &mut Ids) {
    for part in [1, 2, 3] {
        let cut = recorded.len() * part / 4;
        let mut victim = base.victim();
        std::fs::remove_dir_all(victim.data()).expect("removed");
        std::fs::create_dir(victim.data()).expect("a folder");
        disk(before, &victim.data(), &recorded[..cut], Lost::Some, ids);
        victim.start();
        assert!(victim.ready(), "the house comes up after the cut at {cut}");
        let again = victim.session(LETTERS, 40);
        assert_eq!(again.acked.len(), told.acked.len(), "cut at {cut}");
        assert_eq!(victim.stop(), Some(0));
        audit(&victim.store(), &again, &format!("the program after the cut at {cut}"));
    }
}

/// What is lost of the writes after the last flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    All,
    Nothing,
    /// Each of them or not, whatever their order was.
    Some,
    /// As `Some`, and of those that are kept only some sectors.
    Torn,
}

/// Builds the disk that a cut after these calls leaves; answers how many writes were not flushed.
fn disk(before: &Path, to: &Path, calls: &[Recorded], lost: Lost, ids: &mut Ids) -> usize {
    let mut files: BTreeMap<String, (Vec<u8>, Vec<&Call>)> = BTreeMap::new();
    for entry in std::fs::read_dir(before).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        files.insert(name, (std::fs::read(&path).expect("read"), Vec::new()));
    }
    for recorded in calls {
        let (bytes, pending) = files.entry(recorded.file.clone()).or_default();
        match &recorded.call {
            Call::Flush => pending.drain(..).for_each(|call| apply(bytes, call)),
            call => pending.push(call),
        }
    }
    let mut unflushed = 0;
    for (name, (mut bytes, pending)) in files {
        // The index of the log is memory shared between processes, and made anew from the log.
        if name.ends_with("-shm") {
            continue;
        }
        unflushed += pending.len();
        for call in pending {
            let keep = match lost {
                Lost::All => false,
                Lost::Nothing => true,
                Lost::Some | Lost::Torn => ids.per_mille() < 500,
            };
            match (keep, lost, call) {
                (false, ..) => {}
                (true, Lost::Torn, Call::Write { at, bytes: written }) => {
                    for (n, sector) in written.chunks(SECTOR).enumerate() {
                        if ids.per_mille() < 500 {
                            apply(&mut bytes, &Call::Write { at: at + n * SECTOR, bytes: sector.to_vec() });
                        }
                    }
                }
                _ => apply(&mut bytes, call),
            }
        }
        std::fs::write(to.join(name), bytes).expect("written");
    }
    unflushed
}

fn apply(file: &mut Vec<u8>, call: &Call) {
    match call {
        Call::Write { at, bytes } => {
            let end = at + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[*at..end].copy_from_slice(bytes);
        }
        Call::Truncate { to } => file.resize(*to, 0),
        Call::Flush => {}
    }
}

/// The calls on files of the store, from strace's log. A call that another thread interrupted stands where it began.
fn read(log: &str) -> Vec<Recorded> {
    let mut calls = Vec::new();
    for line in log.lines() {
        // The process is padded with spaces.
        let Some((_, rest)) = line.trim_start().split_once(' ') else { continue };
        let Some((at, rest)) = rest.trim_start().split_once(' ') else { continue };
        let Ok(at) = at.parse::<f64>() else { continue };
        let Some((name, arguments)) = rest.trim_start().split_once('(') else { continue };
        let Some((_, path)) = arguments.split_once('<') else { continue };
        let Some((path, arguments)) = path.split_once('>') else { continue };
        let path = hex(path).map_or_else(|| path.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned());
        let Some(file) = path.rsplit('/').next().filter(|file| file.starts_with("house.db")) else { continue };
        let call = match name {
            "fsync" | "fdatasync" => Call::Flush,
            "ftruncate" => match arguments.trim_start_matches([',', ' ']).split([')', ' ']).next().map(str::parse) {
                Some(Ok(to)) => Call::Truncate { to },
                _ => panic!("an ftruncate that cannot be read: {line}"),
            },
            "pwrite64" => {
                let mut pieces = arguments.splitn(3, '"');
                let bytes = pieces.nth(1).and_then(hex).expect("the bytes of a write");
                let numbers = pieces.next().unwrap_or_default();
                let mut numbers = numbers.split([',', ')', ' ', '.']).filter_map(|word| word.parse::<usize>().ok());
                let length = numbers.next().expect("a length");
                assert_eq!(length, bytes.len(), "the log shows all bytes");
                Call::Write { at: numbers.next().expect("a place"), bytes }
            }
            other => panic!("the store is written by {other}, which this replay does not know"),
        };
        calls.push(Recorded { at, file: file.to_owned(), call });
    }
    calls
}

fn hex(text: &str) -> Option<Vec<u8>> {
    if !text.starts_with("\\x") {
        return text.is_empty().then(Vec::new);
    }
    text.split("\\x").skip(1).map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}
