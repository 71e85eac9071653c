//! Attachments in a folder: `blobs/<name>` is an object, `coming/<number>` is one on its way.
//!
//! An object is written under `coming`, flushed to the disk, and renamed; the folder is flushed after it. Names come from
//! the rules, which let only uuids pass, so none leads out of the folder.

use super::ObjectFault;
use crate::limits;
use bytes::{Bytes, BytesMut};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub struct Folder {
    at: PathBuf,
    next: AtomicU64,
}

/// Bytes on their way in. Dropped before they are kept, they leave nothing behind.
pub struct Incoming {
    file: tokio::fs::File,
    path: PathBuf,
    pub bytes: u64,
}

pub(super) struct Pieces {
    file: tokio::fs::File,
    left: u64,
}

impl Folder {
    pub(super) async fn open(at: PathBuf) -> Result<Folder, ObjectFault> {
        let opened = blocking(move || {
            for part in [at.clone(), at.join(KEPT), at.join(COMING)] {
                match DirBuilder::new().mode(0o700).recursive(true).create(&part) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            for left in fs::read_dir(at.join(COMING))? {
                fs::remove_file(left?.path())?;
            }
            flush_folder(&at)?;
            Ok(at)
        });
        Ok(Folder { at: opened.await?, next: AtomicU64::new(0) })
    }

    pub(super) async fn incoming(&self) -> Result<Incoming, ObjectFault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.at.join(COMING).join(number.to_string());
        let at = path.clone();
        let file =
            blocking(move || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&at)).await?;
        let mut file = tokio::fs::File::from_std(file);
        file.set_max_buf_size(limits::BLOB_PIECE_BYTES);
        Ok(Incoming { file, path, bytes: 0 })
    }

    pub(super) async fn keep(&self, mut incoming: Incoming, name: &str) -> Result<(), ObjectFault> {
        incoming.file.flush().await?;
        incoming.file.sync_all().await?;
        let (from, kept) = (incoming.path.clone(), self.at.join(KEPT));
        let to = kept.join(name);
        blocking(move || {
            fs::rename(from, to)?;
            flush_folder(&kept)
        })
        .await?;
        Ok(())
    }

    pub(super) async fn read(&self, name: &str) -> Result<Option<(u64, Pieces)>, ObjectFault> {
        let path = self.at.join(KEPT).join(name);
        let opened = blocking(move || {
            let file = File::open(path)?;
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        });
        match opened.await {
            Ok((file, left)) => {
                let mut file = tokio::fs::File::from_std(file);
                file.set_max_buf_size(limits::BLOB_PIECE_BYTES);
                Ok(Some((left, Pieces { file, left })))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), ObjectFault> {
        let kept = self.at.join(KEPT);
        let path = kept.join(name);
        let removed = blocking(move || match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => flush_folder(&kept),
        });
        Ok(removed.await?)
    }
}

impl Incoming {
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), ObjectFault> {
        self.file.write_all(piece).await?;
        self.bytes += piece.len() as u64;
        Ok(())
    }

    /// All that came, for a place that takes it whole.
    pub(super) async fn whole(&mut self) -> Result<Bytes, ObjectFault> {
        use tokio::io::AsyncSeekExt;
        self.file.flush().await?;
        self.file.seek(io::SeekFrom::Start(0)).await?;
        let mut bytes = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or_default());
        self.file.read_to_end(&mut bytes).await?;
        Ok(bytes.into())
    }
}

impl Drop for Incoming {
    /// What was kept has another name already.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Pieces {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ObjectFault> {
        if self.left == 0 {
            return Ok(None);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(limits::BLOB_PIECE_BYTES);
        let mut piece = BytesMut::with_capacity(most);
        if (&mut self.file).take(most as u64).read_buf(&mut piece).await? == 0 {
            return Err(ObjectFault::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        self.left -= piece.len() as u64;
        Ok(Some(piece.freeze()))
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn flush_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

const KEPT: &str = "blobs";
const COMING: &str = "coming";

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(folder: &Folder, name: &str) -> Option<Vec<u8>> {
        let (bytes, mut pieces) = folder.read(name).await.expect("reads")?;
        let mut out = Vec::new();
        while let Some(piece) = pieces.next().await.expect("piece") {
            assert!(piece.len() <= limits::BLOB_PIECE_BYTES);
            out.extend_from_slice(&piece);
        }
        assert_eq!(out.len() as u64, bytes);
        Some(out)
    }

    #[tokio::test]
    async fn an_object_is_whole_or_not_there_and_a_crash_leaves_nothing() {
        let dir = tempfile::tempdir().expect("folder");
        let at = dir.path().join("attachments");
        let folder = Folder::open(at.clone()).await.expect("opens");
        let content: Vec<u8> = (0..3 * limits::BLOB_PIECE_BYTES + 7).map(|i| i as u8).collect();
        let mut incoming = folder.incoming().await.expect("place");
        incoming.write(&content[..100]).await.expect("writes");
        assert_eq!(all(&folder, "a").await, None);
        incoming.write(&content[100..]).await.expect("writes");
        folder.keep(incoming, "a").await.expect("kept");
        assert_eq!(all(&folder, "a").await.as_deref(), Some(&content[..]));
        assert_eq!(fs::read_dir(at.join(COMING)).expect("coming").count(), 0);
        let dropped = folder.incoming().await.expect("place");
        drop(dropped);
        assert_eq!(fs::read_dir(at.join(COMING)).expect("coming").count(), 0);
        // A process that ends at once runs no destructor.
        std::mem::forget(folder.incoming().await.expect("place"));
        assert_eq!(fs::read_dir(at.join(COMING)).expect("coming").count(), 1);
        let folder = Folder::open(at.clone()).await.expect("opens again");
        assert_eq!(fs::read_dir(at.join(COMING)).expect("coming").count(), 0);
        assert!(all(&folder, "a").await.is_some());
        folder.remove("a").await.expect("removed");
        folder.remove("a").await.expect("twice");
        assert_eq!(all(&folder, "a").await, None);
    }
}
