//! Files that hold secrets: written new, for the owner only, and never read while others could.
//!
//! A file is complete or absent: it is written beside its name, made durable, and linked into place only if nothing
//! stands there.

use super::output::Failure;
use crate::refusal::Exit;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// Reads a secret of text. Refuses a file that its group or others could read or write.
pub fn read_secret(path: &Path, what: &str) -> Result<Zeroizing<String>, Failure> {
    read_private(path, what, SECRET_BYTES_MAX)
}

/// As [`read_secret`], up to so many bytes.
pub fn read_private(path: &Path, what: &str, bytes_max: u64) -> Result<Zeroizing<String>, Failure> {
    let shown = path.display();
    let mut file = File::open(path).map_err(|error| cannot(&error, &format!("{what} cannot be read"), path))?;
    let meta = file.metadata().map_err(|error| cannot(&error, &format!("{what} cannot be read"), path))?;
    if !meta.is_file() {
        return Err(Failure::usage(format!("{what} is not a file")).at(shown));
    }
    let mode = meta.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Failure::usage(format!("{what} can be read by others: its mode is {mode:04o}, it must be 0600"))
            .at(shown)
            .hint(format!("chmod 600 {}", path.display())));
    }
    if meta.len() > bytes_max {
        return Err(Failure::usage(format!("{what} is larger than {bytes_max} bytes")).at(shown));
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(|error| cannot(&error, &format!("{what} cannot be read"), path))?;
    Ok(text)
}

/// Writes a new file with this mode; refuses to replace one.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let fault = |error: &std::io::Error| cannot(error, "the file cannot be written", path);
    let temporary = beside(path);
    let mut options = OpenOptions::new();
    let written = options.write(true).create_new(true).mode(mode).open(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| fs::hard_link(&temporary, path));
    let _ = fs::remove_file(&temporary);
    match placed {
        Ok(()) => sync_folder(path).map_err(|error| fault(&error)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(Failure::usage("a file of this name exists already; it is not replaced")
                .at(path.display())
                .hint("choose another place, or move the old file away"))
        }
        Err(error) => Err(fault(&error)),
    }
}

/// Replaces a secret file whole, or leaves it as it was.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let temporary = beside(path);
    let mut options = OpenOptions::new();
    let written = options.write(true).create_new(true).mode(mode).open(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_folder(path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        cannot(&error, "the file cannot be written", path)
    })
}

/// Bytes from the system's generator.
pub fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::Disk, "the system's random generator does not answer").why(error))?;
    Ok(bytes)
}

/// An error of the file system, as a failure: a missing or forbidden file is the caller's to mend, the rest is the disk's.
pub fn cannot(error: &std::io::Error, what: &str, path: &Path) -> Failure {
    let exit = match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::InvalidData
        | ErrorKind::InvalidInput
        | ErrorKind::InvalidFilename => Exit::Usage,
        _ => Exit::Disk,
    };
    let why = match error.kind() {
        ErrorKind::NotFound => "no such file or folder".to_owned(),
        ErrorKind::InvalidData => "it is not UTF-8 text".to_owned(),
        _ => error.to_string(),
    };
    Failure::new(exit, what).at(path.display()).why(why)
}

fn beside(path: &Path) -> std::path::PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.new", std::process::id()))
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

const SECRET_BYTES_MAX: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_are_new_private_and_refused_when_open() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("key");
        write_new(&path, b"secret", 0o600).expect("written");
        assert_eq!(fs::metadata(&path).expect("meta").mode() & 0o777, 0o600);
        assert_eq!(read_secret(&path, "the key").expect("read").as_str(), "secret");
        assert!(write_new(&path, b"other", 0o600).is_err_and(|f| f.exit == Exit::Usage));
        assert_eq!(fs::read_dir(folder.path()).expect("dir").count(), 1);
        for mode in [0o640, 0o604, 0o620, 0o602, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
            let failure = read_secret(&path, "the key").expect_err("refused");
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.hint.is_some_and(|hint| hint.starts_with("chmod 600 ")));
        }
        replace(&path, b"third", 0o600).expect("replaced");
        assert_eq!(read_secret(&path, "the key").expect("read").as_str(), "third");
    }

    #[test]
    fn a_missing_file_is_the_callers_to_mend() {
        let failure = read_secret(Path::new("/nonexistent/key"), "the key").expect_err("missing");
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(failure.why.as_deref(), Some("no such file or folder"));
    }
}
