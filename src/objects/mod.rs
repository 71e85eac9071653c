//! Where the bytes of attachments lie: a folder of this host, or a bucket that speaks the protocol of S3.
//!
//! What it promises:
//! - **Whole or not there.** What comes is written beside and takes its name when every byte is safe, so nobody reads a
//!   part of an object. What a crash left beside is swept at the next start.
//! - **Flat memory.** Bytes pass through in pieces; only a bucket's object is in memory while it is put there, and only
//!   [`limits::BUCKET_PUTS_MAX`] of them at once.
//! - **Removing is repeatable.** An object that is not there is as good as removed.
//!
//! Deliberately absent: who may have what, and how long it stays. The rules are `mail::blobs`, the records the store's.

mod bucket;
mod folder;

pub use bucket::{Bucket, BucketConfig};
pub use folder::{Folder, Incoming};

use crate::limits;
use bytes::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// Where a house keeps attachments.
pub enum Place {
    Nowhere,
    Folder(PathBuf),
    /// With the folder in which what comes is gathered first.
    Bucket(Box<BucketConfig>, PathBuf),
}

pub enum Objects {
    Folder(Folder),
    Bucket(Bucket, Folder),
}

/// An object that is being read.
pub struct Reading {
    pub bytes: u64,
    source: Source,
}

enum Source {
    Folder(folder::Pieces),
    Bucket(bucket::Pieces),
}

/// Why the bytes could not be moved; never the caller's fault.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFault {
    #[error("no room is left for attachments")]
    Full,
    #[error("attachments: {0}")]
    Io(std::io::Error),
    #[error("the bucket: {0}")]
    Bucket(String),
    #[error("attachments: nothing moved in time")]
    Slow,
}

impl Objects {
    /// Opens the place, making what is missing of a folder, and sweeps what a crash left half come.
    pub async fn open(place: Place, http: reqwest::Client) -> Result<Option<Objects>, ObjectFault> {
        Ok(match place {
            Place::Nowhere => None,
            Place::Folder(at) => Some(Objects::Folder(Folder::open(at).await?)),
            Place::Bucket(config, beside) => {
                Some(Objects::Bucket(Bucket::open(&config, http)?, Folder::open(beside).await?))
            }
        })
    }

    /// A place for bytes that come; they are gone again unless they are kept.
    pub async fn incoming(&self) -> Result<Incoming, ObjectFault> {
        match self {
            Objects::Folder(folder) | Objects::Bucket(_, folder) => folder.incoming().await,
        }
    }

    /// The bytes that came are the object of this name from now on, and safe.
    pub async fn keep(&self, incoming: Incoming, name: &str) -> Result<(), ObjectFault> {
        let kept = async {
            match self {
                Objects::Folder(folder) => folder.keep(incoming, name).await,
                Objects::Bucket(bucket, _) => bucket.keep(incoming, name).await,
            }
        };
        tokio::time::timeout(Duration::from_millis(limits::BLOB_KEEP_MS), kept).await.unwrap_or(Err(ObjectFault::Slow))
    }

    /// The object of this name, if there is one.
    pub async fn read(&self, name: &str) -> Result<Option<Reading>, ObjectFault> {
        Ok(match self {
            Objects::Folder(folder) => {
                folder.read(name).await?.map(|(bytes, pieces)| Reading { bytes, source: Source::Folder(pieces) })
            }
            Objects::Bucket(bucket, _) => {
                bucket.read(name).await?.map(|(bytes, pieces)| Reading { bytes, source: Source::Bucket(pieces) })
            }
        })
    }

    pub async fn remove(&self, name: &str) -> Result<(), ObjectFault> {
        match self {
            Objects::Folder(folder) => folder.remove(name).await,
            Objects::Bucket(bucket, _) => bucket.remove(name).await,
        }
    }
}

impl Reading {
    /// The next piece; nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ObjectFault> {
        match &mut self.source {
            Source::Folder(pieces) => pieces.next().await,
            Source::Bucket(pieces) => pieces.next().await,
        }
    }
}

impl From<std::io::Error> for ObjectFault {
    fn from(error: std::io::Error) -> ObjectFault {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ObjectFault::Full,
            _ => ObjectFault::Io(error),
        }
    }
}
