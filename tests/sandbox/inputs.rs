//! Inputs: placed read-only, hashes checked where they are placed, archives that try to leave refused.

use super::support::*;
use flate2::{Compression, write::GzEncoder};
use std::io::{Cursor, Write};
use verifica::probe::exit_0::{JobEnd, Unpack};
use verifica::sandbox::{Job, JobReport, Source};
use verifica::wire::Sha256;

#[test]
fn an_input_is_there_and_cannot_be_changed() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let mut job =
        shell("echo x >> a/data; mv a/data b; rm -f a/data; echo y > a/new; cat a/data; echo scratch > own; cat own");
    job.inputs.push(input("a/data", b"data\n"));
    let report = go(&job);
    assert_eq!((code(&report), report.stdout.tail.as_str()), (0, "data\nscratch\n"));
    assert_eq!(report.facts["inputs"][0]["sha256"], Sha256::of(b"data\n").hex().as_str());
}

#[test]
fn an_input_with_another_hash_or_without_a_file_is_no_run() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let mut job = shell("true");
    job.inputs.push(input("data", b"data"));
    job.inputs[0].sha256 = Sha256::of(b"other");
    let report = go(&job);
    assert!(matches!(report.end, JobEnd::Unavailable { .. }) && !report.started, "{:?}", report.end);
    job.inputs[0].source = Source::File("/nonexistent".into());
    assert!(!go(&job).started);
}

#[test]
fn archives_are_unpacked_with_their_modes_and_links() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let entries: &[Entry] = &[
        Entry::Folder("d"),
        Entry::File("d/run", b"#!/bin/sh\necho ran\n", 0o755),
        Entry::Link("link", "d/run"),
        Entry::File("./plain", b"p", 0o644),
    ];
    for (unpack, bytes) in
        [(Unpack::Tar, tar(entries)), (Unpack::TarGz, gz(&tar(entries))), (Unpack::Zip, zip(entries))]
    {
        let report = go(&with_archive("out/link; ls out; echo x > out/new", bytes, unpack));
        assert_eq!(report.stdout.tail, "ran\nd\nlink\nplain\n", "{unpack:?} {}", report.stderr.tail);
        assert!(report.stderr.tail.contains("Read-only"), "{}", report.stderr.tail);
    }
}

#[test]
fn an_archive_that_leaves_its_directory_or_its_bounds_is_refused() {
    let _one = alone();
    if !able(&default_policy()) {
        return;
    }
    let many: Vec<String> = (0..10_001).map(|n| format!("f{n}")).collect();
    let many: Vec<Entry> = many.iter().map(|name| Entry::File(name, b"", 0o644)).collect();
    let cases: &[(&str, &[Entry])] = &[
        ("above", &[Entry::File("../x", b"", 0o644)]),
        ("above inside", &[Entry::File("a/../../x", b"", 0o644)]),
        ("absolute", &[Entry::File("/tmp/x", b"", 0o644)]),
        ("backslash", &[Entry::File("a\\..\\x", b"", 0o644)]),
        ("link above", &[Entry::Link("l", "../x")]),
        ("link absolute", &[Entry::Link("l", "/etc/passwd")]),
        ("link through a link", &[Entry::Link("l", "."), Entry::Link("m", "l/..")]),
        ("through a link", &[Entry::Folder("d"), Entry::Link("l", "d"), Entry::File("l/x", b"", 0o644)]),
        ("too many", &many),
    ];
    for (name, entries) in cases {
        for (unpack, bytes) in [(Unpack::Tar, tar(entries)), (Unpack::Zip, zip(entries))] {
            let report = go(&with_archive("true", bytes, unpack));
            assert!(matches!(report.end, JobEnd::ArchiveRefused { .. }), "{name} {unpack:?}: {:?}", report.end);
        }
    }
    let mut device = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Char);
    header.set_size(0);
    header.set_mode(0o666);
    header.set_path("null").expect("path");
    header.set_cksum();
    device.append(&header, std::io::empty()).expect("entry");
    let broken = gz(&tar(&[Entry::File("a", &[7; 5_000], 0o644)]));
    let zeros = vec![0u8; 40 << 20];
    let bomb = gz(&tar(&[Entry::File("zeros", &zeros, 0o644)]));
    let refused: &[(&str, Unpack, Vec<u8>)] = &[
        ("device", Unpack::Tar, device.into_inner().expect("tar")),
        ("cut", Unpack::TarGz, broken[..broken.len() - 4].to_vec()),
        ("not one", Unpack::Zip, b"no archive at all".to_vec()),
        ("not one", Unpack::TarGz, b"no archive at all".to_vec()),
    ];
    for (name, unpack, bytes) in refused {
        let report = go(&with_archive("true", bytes.clone(), *unpack));
        assert!(matches!(report.end, JobEnd::ArchiveRefused { .. }), "{name}: {:?}", report.end);
    }
    let mut small = with_archive("true", bomb, Unpack::TarGz);
    small.policy.scratch_bytes = 8 << 20;
    let report: JobReport = go(&small);
    assert!(matches!(&report.end, JobEnd::ArchiveRefused { reason, .. } if reason.contains("fit")), "{:?}", report.end);
    assert_eq!(left_behind(), Vec::<String>::new());
}

enum Entry<'a> {
    Folder(&'a str),
    File(&'a str, &'a [u8], u32),
    Link(&'a str, &'a str),
}

fn with_archive(script: &str, bytes: Vec<u8>, unpack: Unpack) -> Job {
    let mut job = shell(script);
    job.inputs.push(input("out", &bytes));
    job.inputs[0].unpack = Some(unpack);
    job
}

/// Names are written as they are, clean or not.
fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut out = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        let (name, kind, bytes, mode): (&str, _, &[u8], u32) = match entry {
            Entry::Folder(name) => (name, tar::EntryType::Directory, b"", 0o755),
            Entry::File(name, bytes, mode) => (name, tar::EntryType::Regular, bytes, *mode),
            Entry::Link(name, target) => {
                header.set_link_name_literal(target).expect("target");
                (name, tar::EntryType::Symlink, b"", 0o777)
            }
        };
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        header.set_cksum();
        out.append(&header, bytes).expect("entry");
    }
    out.into_inner().expect("tar")
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).expect("gz");
    out.finish().expect("gz")
}

fn zip(entries: &[Entry]) -> Vec<u8> {
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for entry in entries {
        match entry {
            Entry::Folder(name) => out.add_directory(*name, options).expect("folder"),
            Entry::File(name, bytes, mode) => {
                out.start_file(*name, options.unix_permissions(*mode)).expect("file");
                out.write_all(bytes).expect("bytes");
            }
            Entry::Link(name, target) => out.add_symlink(*name, *target, options).expect("link"),
        }
    }
    out.finish().expect("zip").into_inner()
}
