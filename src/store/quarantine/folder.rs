//! The folder `PATH.quarantine`: a file for each delivery, and an index of them in memory.
//!
//! Only the keeper's thread uses it. A file gets its number as its name once it is whole, so a kill leaves no half
//! delivery. Nothing is flushed: a power cut may tear a file, and one whose first line is damaged is deleted. A
//! delivery that is not as it was kept, by the sum at its file's end, is listed as far as it can be read, and never
//! judged. An error of the system (no descriptors, no rights, a failing disk) deletes nothing.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::limits::QUARANTINE_FILES;
use crate::model::{Headers, Name, Timestamp};
use crate::store::border::{
    DiscardReason, FailedDelivery, QuarantineFilter, QuarantinedDelivery, QuarantinedRow,
};
use crate::store::codec;

use super::discards::{DiscardCounts, count};

/// A file takes whole pages of its file system, usually of this size.
const PAGE_BYTES: u64 = 4096;

/// The name of a file that is not whole yet.
const UNFINISHED: &str = "unfinished";

/// The CRC-32 of all before it, little-endian, ends a file.
const SUM_BYTES: usize = 4;

/// The first line of a file, as JSON. The headers follow as HTTP writes them, then the body under zstd.
#[derive(Serialize, Deserialize)]
struct Description {
    row: QuarantinedRow,
    holder: String,
    path: String,
    headers_bytes: usize,
}

/// What the index has of a file.
struct Entry {
    source: Name,
    received_at: Timestamp,
    reason: String,
    holder: String,
    body_kept: bool,
    /// What it takes on the disk.
    bytes: u64,
}

/// The open folder.
pub(crate) struct QuarantineFolder {
    path: PathBuf,
    /// The kept deliveries by number, which is the order of arrival.
    entries: BTreeMap<i64, Entry>,
    bytes_of_holder: HashMap<String, u64>,
    next: i64,
}

impl QuarantineFolder {
    /// Opens the folder at `path`, or makes it for its owner only.
    ///
    /// # Errors
    /// What the system said: nothing of the folder is used then, and no file is deleted for it.
    pub(crate) fn open(path: PathBuf) -> io::Result<QuarantineFolder> {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut folder = QuarantineFolder {
            path,
            entries: BTreeMap::new(),
            bytes_of_holder: HashMap::new(),
            next: 1,
        };
        for file in fs::read_dir(&folder.path)? {
            let path = file?.path();
            match read_description(&path) {
                Ok((description, file)) => {
                    let bytes = disk_bytes(file.get_ref().metadata()?.size());
                    folder.index(description.row, description.holder, bytes);
                }
                Err(error) if is_damage(&error) => {
                    tracing::debug!(%error, file = %path.display(), "deleting a damaged file");
                    fs::remove_file(&path)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(folder)
    }

    fn index(&mut self, row: QuarantinedRow, holder: String, bytes: u64) {
        *self.bytes_of_holder.entry(holder.clone()).or_default() += bytes;
        self.next = self.next.max(row.id.saturating_add(1));
        let QuarantinedRow { id, source, received_at, reason, body_kept, .. } = row;
        self.entries.insert(id, Entry { source, received_at, reason, holder, body_kept, bytes });
    }

    /// What all files take on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_of_holder.values().sum()
    }

    /// Writes a delivery. After an error there is nothing of it.
    pub(crate) fn keep(
        &mut self,
        delivery: &FailedDelivery,
        holder: String,
        claimed_id: Option<String>,
    ) -> io::Result<()> {
        let body = delivery.body.as_deref().map(codec::compress_now).transpose()?;
        let headers = delivery.headers.to_wire();
        let row = QuarantinedRow {
            id: self.next,
            source: delivery.source.clone(),
            received_at: delivery.received_at,
            address: delivery.address.map(|address| address.to_string()),
            reason: delivery.reason.to_owned(),
            detail: delivery.detail.clone(),
            unproven_event_id: claimed_id,
            body_bytes: delivery.body_bytes,
            body_kept: body.is_some(),
        };
        let path = delivery.path.clone();
        let description = Description { row, holder, path, headers_bytes: headers.len() };
        let mut content = serde_json::to_vec(&description)?;
        content.push(b'\n');
        content.extend(headers);
        content.extend(body.unwrap_or_default());
        let sum = crc32fast::hash(&content);
        content.extend(sum.to_le_bytes());

        let unfinished = self.path.join(UNFINISHED);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished);
        let written = file
            .and_then(|mut file| file.write_all(&content))
            .and_then(|()| fs::rename(&unfinished, self.file(self.next)));
        if written.is_err() {
            // Deleted, so that it takes no space; the next start does it otherwise.
            let _ = fs::remove_file(&unfinished);
        }
        written?;
        self.index(description.row, description.holder, disk_bytes(content.len() as u64));
        Ok(())
    }

    /// Deletes deliveries while the folder is over its bounds: the oldest of the holder that takes most. Returns the counts.
    pub(crate) fn evict(&mut self, max_bytes: u64) -> DiscardCounts {
        let mut evicted = DiscardCounts::new();
        while self.bytes() > max_bytes || self.entries.len() > QUARANTINE_FILES {
            let Some((largest, _)) = self.bytes_of_holder.iter().max_by_key(|(_, bytes)| **bytes)
            else {
                break;
            };
            let oldest = self.entries.iter().find(|(_, entry)| entry.holder == *largest);
            let Some(source) = oldest.map(|(id, _)| *id).and_then(|id| self.remove(id)) else {
                break;
            };
            count(&mut evicted, &source, DiscardReason::Evicted, 1);
        }
        evicted
    }

    /// Deletes what arrived before `oldest`, as counts.
    pub(crate) fn expire(&mut self, oldest: Timestamp) -> DiscardCounts {
        let mut expired = DiscardCounts::new();
        let old = self.entries.iter().filter(|(_, entry)| entry.received_at < oldest);
        for id in old.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(source) = self.remove(id) {
                count(&mut expired, &source, DiscardReason::Expired, 1);
            }
        }
        expired
    }

    /// Deletes one; its source, where it was there. A file that cannot be deleted is forgotten, and found
    /// again at the next start.
    pub(crate) fn remove(&mut self, id: i64) -> Option<Name> {
        let Entry { source, holder, bytes, .. } = self.entries.remove(&id)?;
        if let Some(all) = self.bytes_of_holder.get_mut(&holder) {
            *all -= bytes;
            if *all == 0 {
                self.bytes_of_holder.remove(&holder);
            }
        }
        if let Err(error) = fs::remove_file(self.file(id)) {
            tracing::warn!(%error, id, "failed to delete a delivery from the quarantine");
        }
        Some(source)
    }

    /// The numbers that `filter` selects, oldest first.
    pub(crate) fn select(&self, filter: &QuarantineFilter) -> impl DoubleEndedIterator<Item = i64> {
        let selects = |id: i64, entry: &Entry| {
            filter.source.as_ref().is_none_or(|source| *source == entry.source)
                && filter.reason.as_ref().is_none_or(|reason| *reason == entry.reason)
                && filter.since.is_none_or(|since| entry.received_at >= since)
                && filter.upto.is_none_or(|upto| id <= upto)
        };
        let selected = self.entries.iter().filter(move |(id, entry)| selects(**id, entry));
        selected.map(|(id, _)| *id)
    }

    /// One delivery as listed. None where its file is gone.
    pub(crate) fn row(&self, id: i64) -> Option<QuarantinedRow> {
        read_description(&self.file(id)).ok().map(|(description, _)| description.row)
    }

    /// The newest delivery of each source, and how many of that source have a body.
    pub(crate) fn newest(&self) -> Vec<(QuarantinedRow, u64)> {
        let mut sources: BTreeMap<&Name, (i64, u64)> = BTreeMap::new();
        for (id, entry) in &self.entries {
            let (newest, with_body) = sources.entry(&entry.source).or_default();
            *newest = *id;
            *with_body += u64::from(entry.body_kept);
        }
        let rows = sources.into_values();
        rows.filter_map(|(id, with_body)| Some((self.row(id)?, with_body))).collect()
    }

    /// One delivery with its source and its body; no body where none was kept or it is damaged.
    ///
    /// # Errors
    /// What the system said: it may be readable later.
    pub(crate) fn read(&self, id: i64) -> io::Result<(Name, Option<QuarantinedDelivery>)> {
        let entry = self.entries.get(&id).ok_or(ErrorKind::NotFound)?;
        let kept = match entry.body_kept.then(|| read_kept(&self.file(id))).transpose() {
            Err(error) if is_damage(&error) => None,
            kept => kept?,
        };
        Ok((entry.source.clone(), kept))
    }

    fn file(&self, id: i64) -> PathBuf {
        self.path.join(id.to_string())
    }
}

fn disk_bytes(file_bytes: u64) -> u64 {
    file_bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES
}

/// Whether the file is damaged, rather than the system at fault. serde_json says so of a line that is not JSON or
/// is cut.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

/// The first line of a file, which must have the number that is its name, and the rest.
fn read_description(path: &Path) -> io::Result<(Description, BufReader<File>)> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    file.read_until(b'\n', &mut line)?;
    let description: Description = serde_json::from_slice(&line)?;
    if path.file_name().and_then(|name| name.to_str()) == Some(&description.row.id.to_string()) {
        Ok((description, file))
    } else {
        Err(ErrorKind::InvalidData.into())
    }
}

fn read_kept(path: &Path) -> io::Result<QuarantinedDelivery> {
    let content = fs::read(path)?;
    let parts = content.split_last_chunk::<SUM_BYTES>();
    if parts.is_none_or(|(all, sum)| crc32fast::hash(all).to_le_bytes() != *sum) {
        return Err(ErrorKind::InvalidData.into());
    }
    let (Description { row, path, headers_bytes, .. }, mut file) = read_description(path)?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest)?;
    rest.truncate(rest.len().saturating_sub(SUM_BYTES));
    let (headers, body) =
        rest.split_at_checked(headers_bytes).ok_or(io::Error::from(ErrorKind::InvalidData))?;
    let bytes = usize::try_from(row.body_bytes).unwrap_or(usize::MAX);
    Ok(QuarantinedDelivery {
        id: row.id,
        source: row.source,
        received_at: row.received_at,
        path,
        headers: Headers::from_wire(headers),
        body: Bytes::from(codec::decompress_now(body, bytes)?),
    })
}
