//! The location of a fleet: a directory, or a bucket of any store that speaks S3.
//!
//! Both must do two things: put a file in place atomically, and create a file only if none of its name exists. In a directory we do it
//! ourselves (the crate never syncs to disk): a temporary file, fsync, then rename or link. In a bucket it is a multipart upload,
//! and a put with `If-None-Match: *`; a store that ignores that header could let two writers commit the same number, so `init`
//! tests it.

use crate::scratch::{HeldDirectory, Purpose};
use anyhow::{Context as _, Result, anyhow, bail};
use datafusion::execution::object_store::ObjectStoreUrl;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Place;
use object_store::signer::Signer as _;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, WriteMultipart};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;

/// Directory for incomplete files.
const TEMPORARY_DIRECTORY: &str = "_tmp";

/// How often a put of a file is tried before the failure is reported, in addition to the retries of each request.
const PUT_TRIES_MAX: u32 = 4;
/// How often a file's removal is tried.
const REMOVAL_TRIES_MAX: u32 = 8;
/// The first pause between two tries; later ones are longer.
const RETRY_INTERVAL: Duration = Duration::from_millis(300);
/// Files up to this size are one request; larger ones are split into parts of this size.
const PART_BYTES: u64 = 8 << 20;

/// A fleet's location.
#[derive(Clone)]
pub struct Store {
    inner: Arc<dyn ObjectStore>,
    /// The same store, if it is a bucket.
    s3: Option<Arc<AmazonS3>>,
    /// The prefix of every path.
    prefix: Place,
    /// The directory, if the store is one.
    local: Option<PathBuf>,
    url: String,
    /// Directory for files on their way into a bucket.
    scratch: Arc<Mutex<Option<HeldDirectory>>>,
}

/// A file of a fleet as its store lists it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Relative to the fleet's root.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, ns since 1970.
    pub at_unix_ns: u64,
}

impl Store {
    /// Returns the location that an argument of the command line names. Creates nothing.
    ///
    /// # Errors
    /// It names no location.
    pub fn open(word: &str) -> Result<Self> {
        if let Some(rest) = word.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() {
                bail!("{word} names no bucket; expected s3://BUCKET/PATH");
            }
            let built = AmazonS3Builder::from_env().with_bucket_name(bucket).build();
            let s3 = Arc::new(built.with_context(|| format!("setting up access to {word}"))?);
            return Ok(Self {
                inner: s3.clone(),
                s3: Some(s3),
                prefix: Place::parse(prefix.trim_matches('/')).with_context(|| format!("{word} has no valid path"))?,
                local: None,
                url: format!("s3://{bucket}"),
                scratch: Arc::default(),
            });
        }
        if let Some((scheme, _)) = word.split_once("://") {
            bail!("{scheme}:// is not supported; give a directory, or s3://BUCKET/PATH");
        }
        let directory = std::path::absolute(word).with_context(|| format!("{word} is not a path"))?;
        // Links and `..` must not affect where the engine looks.
        let directory = fs::canonicalize(&directory).unwrap_or(directory);
        let prefix =
            Place::from_absolute_path(&directory).with_context(|| format!("{word} is not a valid path for a fleet"))?;
        Ok(Self {
            inner: Arc::new(LocalFileSystem::new()),
            s3: None,
            prefix,
            local: Some(directory),
            url: "file://".into(),
            scratch: Arc::default(),
        })
    }

    /// The store for the engine, and its URL there.
    pub fn for_engine(&self) -> Result<(ObjectStoreUrl, Arc<dyn ObjectStore>)> {
        let url =
            if self.local.is_some() { ObjectStoreUrl::local_filesystem() } else { ObjectStoreUrl::parse(&self.url)? };
        Ok((url, self.inner.clone()))
    }

    /// The location of a path of the fleet in its store.
    pub fn location(&self, path: &str) -> Place {
        path.split('/').filter(|part| !part.is_empty()).fold(self.prefix.clone(), |place, part| place.join(part))
    }

    /// The directory, if the store is one.
    pub fn directory(&self) -> Option<&Path> {
        self.local.as_deref()
    }

    fn local_path(&self, path: &str) -> Option<PathBuf> {
        self.local.as_ref().map(|directory| directory.join(path))
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// It cannot be read. A missing file is `None`.
    pub async fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        match self.inner.get(&self.location(path)).await {
            Ok(found) => Ok(Some(found.bytes().await.with_context(|| format!("reading {path}"))?.to_vec())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {path}")),
        }
    }

    /// Fetches a file into a temporary one.
    pub async fn fetch(&self, path: &str) -> Result<File> {
        if let Some(here) = self.local_path(path) {
            return File::open(&here).with_context(|| format!("reading {}", here.display()));
        }
        let found = self.inner.get(&self.location(path)).await.with_context(|| format!("reading {path}"))?;
        let mut file = tempfile::tempfile().context("creating a temporary file")?;
        let mut bytes = found.into_stream();
        while let Some(some) = bytes.try_next().await.with_context(|| format!("reading {path}"))? {
            std::io::Write::write_all(&mut file, &some).context("writing a temporary file")?;
        }
        std::io::Seek::rewind(&mut file)?;
        Ok(file)
    }

    /// Creates a temporary file that may become one of the fleet's.
    pub fn temporary(&self) -> Result<NamedTempFile> {
        let Some(directory) = self.local_path(TEMPORARY_DIRECTORY) else {
            let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            let held = match scratch.take() {
                Some(held) => held,
                None => HeldDirectory::new(Purpose::Query).context("creating a directory for temporary files")?,
            };
            return NamedTempFile::new_in(scratch.insert(held).path()).context("creating a temporary file");
        };
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let mut made = tempfile::Builder::new();
        made.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        made.tempfile_in(&directory).with_context(|| format!("creating a file in {}", directory.display()))
    }

    /// Puts a complete file in place, where nothing else may be.
    pub async fn put_file(&self, file: NamedTempFile, path: &str) -> Result<()> {
        self.bring(file, path, false).await
    }

    /// Puts a complete file in place, even if another writer has put the same there. At no moment is the file missing, since that writer
    /// may have committed it.
    pub async fn replace_file(&self, file: NamedTempFile, path: &str) -> Result<()> {
        self.bring(file, path, true).await
    }

    async fn bring(&self, file: NamedTempFile, path: &str, replace: bool) -> Result<()> {
        let to = || format!("writing {path}");
        if let Some(here) = self.local_path(path) {
            file.as_file().sync_all().with_context(to)?;
            let directory = here.parent().context("a file has a directory")?;
            fs::create_dir_all(directory).with_context(to)?;
            let brought = if replace { file.persist(&here) } else { file.persist_noclobber(&here) };
            brought.map_err(|error| error.error).with_context(to)?;
            return sync_directory(directory).with_context(to);
        }
        let bytes = file.as_file().metadata().with_context(to)?.len();
        let mut tries = 1;
        loop {
            let failed = match self.upload(&file, bytes, path).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // It may have succeeded, with only the response lost. No other file has its name.
            if self.inner.head(&self.location(path)).await.is_ok_and(|there| there.size == bytes) {
                return Ok(());
            }
            if tries == PUT_TRIES_MAX {
                return Err(failed).with_context(to);
            }
            tokio::time::sleep(RETRY_INTERVAL * tries).await;
            tries += 1;
        }
    }

    /// Uploads a file to a store: as one request, which is retried automatically, or in parts.
    async fn upload(&self, file: &NamedTempFile, bytes: u64, path: &str) -> Result<()> {
        let mut source = file.reopen()?;
        if bytes <= PART_BYTES {
            let mut whole = Vec::new();
            source.read_to_end(&mut whole)?;
            self.inner.put(&self.location(path), PutPayload::from(whole)).await?;
            return Ok(());
        }
        let upload = self.inner.put_multipart(&self.location(path)).await?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES as usize);
        let mut some = vec![0; 1 << 20];
        loop {
            let read = source.read(&mut some)?;
            if read == 0 {
                break;
            }
            upload.wait_for_capacity(4).await?;
            upload.write(&some[..read]);
        }
        upload.finish().await?;
        Ok(())
    }

    /// Creates a small file if none of that name exists; returns false if one does.
    pub async fn put_new(&self, path: &str, bytes: Vec<u8>) -> Result<bool> {
        let to = || format!("writing {path}");
        if let Some(here) = self.local_path(path) {
            let mut file = self.temporary()?;
            std::io::Write::write_all(&mut file, &bytes).and_then(|()| file.as_file().sync_all()).with_context(to)?;
            let directory = here.parent().context("a file has a directory")?;
            fs::create_dir_all(directory).with_context(to)?;
            // A link is only created where nothing exists, also on network file systems.
            return match fs::hard_link(file.path(), &here) {
                Ok(()) => sync_directory(directory).with_context(to).map(|()| true),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
                Err(error) => Err(error).with_context(to),
            };
        }
        let mut tries = 1;
        loop {
            let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let put = self.inner.put_opts(&self.location(path), PutPayload::from(bytes.clone()), create).await;
            let error = match put {
                Ok(_) => return Ok(true),
                // A file from an earlier try of ours whose response was lost is ours: no other writer puts the same bytes.
                Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                    return Ok(tries > 1 && self.read(path).await?.is_some_and(|there| there == bytes));
                }
                Err(error) => error,
            };
            // Refusals are final; failures of the network or the store may be temporary.
            if tries == PUT_TRIES_MAX || !matches!(error, object_store::Error::Generic { .. }) {
                return Err(error).with_context(to);
            }
            tokio::time::sleep(RETRY_INTERVAL * tries).await;
            tries += 1;
        }
    }

    /// The files below a directory of the fleet.
    pub async fn list(&self, directory: &str) -> Result<Vec<Listed>> {
        self.list_after(directory, None).await
    }

    /// The files below a directory whose names come after that of a file, which a store finds without listing earlier
    /// ones.
    pub async fn list_after(&self, directory: &str, after: Option<&str>) -> Result<Vec<Listed>> {
        let (below, cut) = (self.location(directory), self.prefix.as_ref().len());
        let found = match after {
            Some(after) => self.inner.list_with_offset(Some(&below), &self.location(after)),
            None => self.inner.list(Some(&below)),
        };
        let found = found.map_ok(|meta| {
            let path = meta.location.as_ref();
            Listed {
                path: path.get(cut..).unwrap_or_default().trim_start_matches('/').to_string(),
                bytes: meta.size,
                at_unix_ns: meta.last_modified.timestamp_nanos_opt().and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0),
            }
        });
        let mut found: Vec<Listed> = found.try_collect().await.with_context(|| format!("listing {directory}"))?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Removes a file; a missing one counts as removed.
    pub async fn delete(&self, path: &str) -> Result<()> {
        if let Some(s3) = &self.s3 {
            return remove_object(s3, &self.location(path)).await.with_context(|| format!("removing {path}"));
        }
        match self.inner.delete(&self.location(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("removing {path}")),
        }
    }

    /// Removes the leftovers of writers that were killed more than `grace_ns` ago; returns how many files.
    pub fn sweep(&self, grace_ns: u64) -> Result<u64> {
        let Some(directory) = self.local_path(TEMPORARY_DIRECTORY).filter(|directory| directory.is_dir()) else {
            return Ok(0);
        };
        let mut swept = 0;
        for entry in fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
            let entry = entry?;
            let age = entry.metadata().ok().and_then(|about| about.modified().ok()).and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age.as_nanos() >= u128::from(grace_ns)) && fs::remove_file(entry.path()).is_ok() {
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// Removes a file of a bucket with a request of its own. The crate's request is for several files, and has a checksum that some stores
/// refuse (S3Proxy 3.1).
async fn remove_object(s3: &AmazonS3, at: &Place) -> Result<()> {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
    let mut tries = 1;
    loop {
        let url = s3.signed_url(reqwest::Method::DELETE, at, Duration::from_secs(300)).await?;
        let failed = match client.delete(url).send().await {
            Ok(answer) if answer.status().is_success() || answer.status() == reqwest::StatusCode::NOT_FOUND => {
                return Ok(());
            }
            Ok(answer) => anyhow!("the store answered {}", answer.status()),
            // Its URL contains a signature.
            Err(error) => error.without_url().into(),
        };
        if tries == REMOVAL_TRIES_MAX {
            return Err(failed);
        }
        tokio::time::sleep(RETRY_INTERVAL * tries).await;
        tries += 1;
    }
}

fn sync_directory(directory: &Path) -> std::io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with some text.
    fn file(store: &Store, text: &str) -> NamedTempFile {
        let mut file = store.temporary().unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn file_of_another_writer_is_replaced_only_if_it_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().to_str().unwrap()).unwrap();
        let runtime = crate::ask::runtime(1).unwrap();
        runtime.block_on(async {
            for path in ["spans/date=2026-11-25/part-a.parquet", "_raw/0123456789abcdef/events.log"] {
                store.put_file(file(&store, "first"), path).await.unwrap();
                assert!(store.put_file(file(&store, "other"), path).await.is_err(), "{path}");
                assert_eq!(store.read(path).await.unwrap().unwrap(), b"first");
                store.replace_file(file(&store, "again"), path).await.unwrap();
                assert_eq!(store.read(path).await.unwrap().unwrap(), b"again");
            }
        });
    }
}
