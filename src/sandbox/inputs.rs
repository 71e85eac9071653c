//! Inputs: checked against their hashes and placed in the job's own scratch, archives unpacked. It happens inside the new
//! root, so whatever an archive tries ends there; still it may not write through links or out of its directory.
//!
//! Deliberately absent: owners, times, devices, pipes, set-user bits, and names that two readers could read differently.

use super::plan::{InputFacts, Note, Plan, PlannedInput, Refused};
use super::root;
use crate::limits;
use crate::probe::exit_0::Unpack;
use crate::wire::Sha256;
use flate2::read::MultiGzDecoder;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Cursor, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Component, Path, PathBuf};

/// Places every input under the job's directory, in the order given, and freezes them.
pub fn place(plan: &Plan, files: Vec<OwnedFd>) -> Result<Vec<InputFacts>, Note> {
    let mut facts = Vec::new();
    if files.len() != plan.inputs.len() {
        return Err(Note::Refused(Refused::new("inputs", "not every input came with the plan")));
    }
    for (input, file) in plan.inputs.iter().zip(files) {
        facts.push(one(plan, input, File::from(file))?);
    }
    for input in &plan.inputs {
        let inside = |other: &&PlannedInput| input.path.strip_prefix(&other.path).is_some_and(|r| r.starts_with('/'));
        if !plan.inputs.iter().any(|other| inside(&other)) {
            root::freeze(&format!("{WORK}/{}", input.path)).map_err(Note::Refused)?;
        }
    }
    Ok(facts)
}

/// A file or a directory tree that came to be.
struct Placer<'a> {
    root: PathBuf,
    path: &'a str,
    owner: u32,
    room: u64,
    entries: usize,
    /// A later entry of the same name takes the place of the earlier one.
    replace: bool,
}

fn one(plan: &Plan, input: &PlannedInput, mut file: File) -> Result<InputFacts, Note> {
    let fault = |reason: String| Note::Input { path: input.path.clone(), reason };
    let mut bytes = Vec::new();
    (&mut file)
        .take(limits::JOB_INPUT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| fault(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > limits::JOB_INPUT_BYTES_MAX {
        return Err(fault(format!("has more than {} bytes", limits::JOB_INPUT_BYTES_MAX)));
    }
    let seen = Sha256::of(&bytes);
    if seen != input.sha256 {
        return Err(fault(format!("has the SHA-256 {seen}, expected {}", input.sha256)));
    }
    let mut facts = InputFacts { path: input.path.clone(), sha256: seen, bytes: bytes.len() as u64, entries: 1 };
    let at = PathBuf::from(WORK).join(&input.path);
    let owner = plan.inner_id();
    let room = plan.policy.scratch_bytes;
    let refused = |reason: String| Note::Archive { path: input.path.clone(), reason };
    let Some(unpack) = input.unpack else {
        let folder = at.parent().unwrap_or(Path::new(WORK)).to_owned();
        let name = at.file_name().map(PathBuf::from).unwrap_or_default();
        let above = folder.strip_prefix(WORK).map(Path::to_owned).unwrap_or_default();
        let mut placer =
            Placer { root: PathBuf::from(WORK), path: &input.path, owner, room, entries: 0, replace: false };
        placer.folders(&above).map_err(refused)?;
        let placed = placer.file(&above.join(name), &mut bytes.as_slice(), input.mode.unwrap_or(0o644));
        placed.map_err(|reason| fault(format!("cannot be placed: {reason}")))?;
        return Ok(facts);
    };
    let work = Placer { root: PathBuf::from(WORK), path: &input.path, owner, room, entries: 0, replace: false };
    work.folders(Path::new(&input.path)).map_err(refused)?;
    let replace = unpack != Unpack::Zip;
    let mut placer = Placer { root: at, path: &input.path, owner, room, entries: 0, replace };
    let done = match unpack {
        Unpack::Tar => placer.tar(bytes.as_slice()),
        Unpack::TarGz => placer.tar(MultiGzDecoder::new(bytes.as_slice())),
        Unpack::Zip => placer.zip(&bytes),
    };
    done.map_err(refused)?;
    facts.entries = placer.entries as u64;
    Ok(facts)
}

impl Placer<'_> {
    fn tar(&mut self, reader: impl Read) -> Result<(), String> {
        let mut archive = tar::Archive::new(reader);
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let kind = entry.header().entry_type();
            if matches!(kind, tar::EntryType::XGlobalHeader) {
                continue;
            }
            let name = entry.path_bytes().into_owned();
            let Some(path) = clean(&name)? else { continue };
            self.counted()?;
            let mode = entry.header().mode().map_err(broken)? & 0o777;
            match kind {
                tar::EntryType::Directory => self.folders(&path)?,
                tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                    self.parents(&path)?;
                    self.file(&path, &mut entry, mode)?;
                }
                tar::EntryType::Symlink => {
                    let target = entry.link_name_bytes().ok_or("a link has no target")?.into_owned();
                    self.link(&path, &target)?;
                }
                tar::EntryType::Link => {
                    let target = entry.link_name_bytes().ok_or("a link has no target")?.into_owned();
                    let target = clean(&target)?.ok_or("a link to the archive itself")?;
                    self.parents(&path)?;
                    self.no_links(&target)?;
                    let from = self.root.join(&target);
                    if !fs::symlink_metadata(&from).map_err(|_| "a link to what is not in the archive")?.is_file() {
                        return Err("a hard link to what is not a file".to_owned());
                    }
                    self.make_way(&path)?;
                    fs::hard_link(from, self.root.join(&path)).map_err(full)?;
                }
                _ => return Err(format!("{} is neither file, directory nor link", show(&name))),
            }
        }
        // What follows the end is read too: a compressed stream tells only there that it was whole.
        io::copy(&mut archive.into_inner().take(self.room), &mut io::sink()).map_err(broken)?;
        Ok(())
    }

    fn zip(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|e| broken(io::Error::other(e)))?;
        for at in 0..archive.len() {
            let mut entry = archive.by_index(at).map_err(|e| broken(io::Error::other(e)))?;
            let name = entry.name_raw().to_vec();
            let Some(path) = clean(&name)? else { continue };
            self.counted()?;
            let mode = entry.unix_mode();
            match mode.map_or(0, |mode| mode & libc::S_IFMT) {
                libc::S_IFLNK => {
                    let mut target = Vec::new();
                    (&mut entry).take(LINK_BYTES_MAX + 1).read_to_end(&mut target).map_err(broken)?;
                    self.link(&path, &target)?;
                }
                _ if entry.is_dir() => self.folders(&path)?,
                0 | libc::S_IFREG => {
                    self.parents(&path)?;
                    self.file(&path, &mut entry, mode.map_or(0o644, |mode| mode & 0o777))?;
                }
                _ => return Err(format!("{} is neither file, directory nor link", show(&name))),
            }
        }
        Ok(())
    }

    fn counted(&mut self) -> Result<(), String> {
        self.entries += 1;
        if self.entries > limits::ARCHIVE_ENTRIES_MAX {
            return Err(format!("it has more than {} entries", limits::ARCHIVE_ENTRIES_MAX));
        }
        Ok(())
    }

    fn parents(&self, path: &Path) -> Result<(), String> {
        path.parent().map_or(Ok(()), |parent| self.folders(parent))
    }

    /// Creates what is missing of a path; what is there must be directories, never links.
    fn folders(&self, path: &Path) -> Result<(), String> {
        let mut at = self.root.clone();
        for part in path.components() {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(format!("in {} something is not a directory", show_path(self.path))),
                Err(_) => {
                    fs::create_dir(&at).map_err(full)?;
                    fs::set_permissions(&at, Permissions::from_mode(0o755)).map_err(full)?;
                    chown(&at, Some(self.owner), Some(self.owner)).map_err(full)?;
                }
            }
        }
        Ok(())
    }

    fn no_links(&self, path: &Path) -> Result<(), String> {
        let mut at = self.root.clone();
        for part in path.components() {
            at.push(part);
            if fs::symlink_metadata(&at).is_ok_and(|found| found.is_symlink()) {
                return Err("an entry is reached through a link".to_owned());
            }
        }
        Ok(())
    }

    fn make_way(&self, path: &Path) -> Result<(), String> {
        let at = self.root.join(path);
        match fs::symlink_metadata(&at) {
            Err(_) => Ok(()),
            Ok(found) if self.replace && !found.is_dir() => fs::remove_file(&at).map_err(full),
            Ok(_) => Err("an entry takes the place of another".to_owned()),
        }
    }

    fn file(&mut self, path: &Path, from: &mut dyn Read, mode: u32) -> Result<(), String> {
        self.make_way(path)?;
        let at = self.root.join(path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&at).map_err(full)?;
        let mut buffer = vec![0u8; 65_536];
        loop {
            let got = from.read(&mut buffer).map_err(broken)?;
            if got == 0 {
                break;
            }
            self.room = self.room.checked_sub(got as u64).ok_or_else(too_large)?;
            file.write_all(buffer.get(..got).unwrap_or_default()).map_err(full)?;
        }
        chown(&at, Some(self.owner), Some(self.owner)).map_err(full)?;
        file.set_permissions(Permissions::from_mode(mode & 0o777)).map_err(full)
    }

    /// A symbolic link that stays within the archive's own directory.
    fn link(&self, path: &Path, target: &[u8]) -> Result<(), String> {
        use std::os::unix::ffi::OsStrExt;
        if target.is_empty() || target.len() as u64 > LINK_BYTES_MAX || target.contains(&0) {
            return Err("a link has no target, or one that cannot be".to_owned());
        }
        let target = Path::new(std::ffi::OsStr::from_bytes(target));
        let mut depth = path.components().count() as i64 - 1;
        let mut down = false;
        for part in target.components() {
            match part {
                Component::Normal(_) => down = true,
                Component::CurDir => {}
                // After a name, which may be a link itself, `..` could lead anywhere.
                Component::ParentDir => depth = if down { -1 } else { depth - 1 },
                Component::RootDir | Component::Prefix(_) => depth = -1,
            }
            if depth < 0 {
                return Err("a link leaves the directory".to_owned());
            }
        }
        self.parents(path)?;
        self.make_way(path)?;
        symlink(target, self.root.join(path)).map_err(full)
    }
}

/// The path of an entry: relative, one way to write it, no way out. `None` is the archive's own directory.
fn clean(name: &[u8]) -> Result<Option<PathBuf>, String> {
    use std::os::unix::ffi::OsStrExt;
    let bad = |why: &str| Err(format!("the entry {} {why}", show(name)));
    if name.is_empty() || name.len() > PATH_BYTES_MAX || name.contains(&0) {
        return bad("has no usable name");
    }
    if name.starts_with(b"/") || name.contains(&b'\\') {
        return bad("has an absolute name, or one that other systems read differently");
    }
    let mut out = PathBuf::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return bad("leaves the directory"),
            part => out.push(std::ffi::OsStr::from_bytes(part)),
        }
    }
    Ok((!out.as_os_str().is_empty()).then_some(out))
}

fn broken(error: io::Error) -> String {
    format!("it cannot be read as what it should be: {error}")
}

fn full(error: io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => too_large(),
        _ => format!("an entry cannot be placed: {error}"),
    }
}

fn too_large() -> String {
    "it does not fit in the scratch of the policy".to_owned()
}

fn show(name: &[u8]) -> String {
    show_path(&String::from_utf8_lossy(name))
}

fn show_path(path: &str) -> String {
    crate::probe::text::quote(path, NAME_CHARS)
}

const WORK: &str = "/work";
const LINK_BYTES_MAX: u64 = 4_095;
const PATH_BYTES_MAX: usize = 1_024;
const NAME_CHARS: usize = 120;
