//! The address of a root: `s3://bucket/prefix`, `gs://…`, `az://container/…`, `file:///…`, or a
//! directory's path.

use super::access_error::{AccessError, Kind, Way};
use super::connector::Connector;
use super::contact::Contact;
use super::way_there;
use anyhow::{Context, bail};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::PaginatedListStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{BackoffConfig, Error, ObjectStore, RetryConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A request is tried again so often, within so long: what takes longer, the next look at all of
/// it tries again.
const RETRIES: usize = 6;
const RETRY_PATIENCE: Duration = Duration::from_secs(40);

/// What is kept below an address.
#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The same, which lists page by page; a directory has no pages.
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    contact: Arc<Contact>,
    prefix: ObjectPath,
    /// The address as it was given, without a slash at its end.
    shown: String,
    kind: Kind,
    /// Where it is a directory.
    dir: Option<PathBuf>,
    /// Whether a name can be given to what is new only; found out by trying.
    lacks_create: Arc<AtomicBool>,
}

/// What the parts of an address are.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    kind: Kind,
    /// The bucket, or container.
    bucket: &'a str,
    /// A path within, or a directory.
    path: &'a str,
}

/// Whether this is an address and no path of a directory.
pub(crate) fn is_address(text: &str) -> bool {
    text.contains("://")
}

impl Objects {
    /// What an address names. Asks nobody yet.
    ///
    /// # Errors
    /// When it is no address, or what it takes to reach it is not set.
    pub(crate) fn open(address: &str) -> anyhow::Result<Self> {
        let parts = Parts::of(address)?;
        let doing = || format!("failed to open {address}");
        let dir = (parts.kind == Kind::Directory).then(|| PathBuf::from(parts.path));
        let contact = Arc::new(Contact::new());
        let (store, pages) = parts.store(&contact).with_context(doing)?;
        let prefix = match &dir {
            Some(_) => ObjectPath::default(),
            None => ObjectPath::parse(parts.path.trim_matches('/')).with_context(doing)?,
        };
        Ok(Self {
            store,
            pages,
            contact,
            prefix,
            shown: address.trim_end_matches('/').to_owned(),
            kind: parts.kind,
            dir,
            lacks_create: Arc::default(),
        })
    }

    /// Whether a name can be given to what is new only, as far as is known.
    pub(crate) fn has_create(&self) -> bool {
        !self.lacks_create.load(Ordering::Relaxed)
    }

    /// Notes that [`Self::has_create`] is no longer so.
    pub(crate) fn note_no_create(&self) {
        self.lacks_create.store(true, Ordering::Relaxed);
    }

    /// The directory, where it is one.
    pub(crate) fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Something below it; `relative` has slashes between its names.
    pub(crate) fn path(&self, relative: &str) -> ObjectPath {
        let names = relative.split('/').filter(|name| !name.is_empty());
        names.fold(self.prefix.clone(), |path, name| path.join(name))
    }

    /// The same as a person names it.
    pub(crate) fn shown(&self, relative: &str) -> String {
        match relative.is_empty() {
            true => self.shown.clone(),
            false => format!("{}/{relative}", self.shown),
        }
    }

    /// That nobody else leads elsewhere what is put somewhere below it, or removed there.
    pub(crate) async fn check_way(&self, relative: &str) -> Result<(), AccessError> {
        let Some(dir) = self.dir.clone() else {
            return Ok(());
        };
        let relative = relative.to_owned();
        // A mount can hang.
        let looked = tokio::task::spawn_blocking(move || way_there::check(&dir, &relative)).await;
        let checked = looked.unwrap_or_else(|error| Err(error.to_string()));
        checked.map_err(AccessError::blocked)
    }

    /// What an error about something below it means.
    pub(crate) fn failure(&self, relative: &str, error: &Error) -> AccessError {
        let mut failure = AccessError::of(error, self.kind, &self.shown(relative));
        if failure.way == Way::Again
            && self
                .contact
                .server()
                .is_some_and(|server| !failure.words.contains(&server))
        {
            failure.words.push_str(&self.of_server());
        }
        failure
    }

    /// Who was asked, for the end of a sentence; nothing where that is no server.
    pub(super) fn of_server(&self) -> String {
        let server = self.contact.server();
        server.map_or_else(String::new, |server| format!(" (asked: {server})"))
    }

    /// Something has arrived there, or it is not its server that is waited for.
    pub(crate) fn note_heard(&self) {
        self.contact.heard();
    }

    /// When it is given up of which something was begun then: so long after anything arrived.
    pub(crate) fn given_up(&self, begun: Instant, patience: Duration) -> Instant {
        self.contact.last_heard().max(begun) + patience
    }

    /// Waits until then.
    pub(crate) async fn silence(&self, begun: Instant, patience: Duration) {
        while Instant::now() < self.given_up(begun, patience) {
            sleep_until(self.given_up(begun, patience)).await;
        }
    }

    /// That its server did not answer for so long.
    pub(crate) fn silent(&self, relative: &str, patience: Duration) -> AccessError {
        let words = format!(
            "{}: nothing arrived within {} s{}; --timeout (or MEMTRACE_REMOTE_TIMEOUT) waits longer",
            self.shown(relative),
            patience.as_secs_f64(),
            match self.contact.wrong() {
                Some(wrong) => format!(" (at last {wrong})"),
                None => self.of_server(),
            }
        );
        let way = Way::Again;
        AccessError { words, way }
    }
}

impl<'a> Parts<'a> {
    fn of(address: &'a str) -> anyhow::Result<Self> {
        let Some((scheme, rest)) = address.split_once("://") else {
            return Ok(Self {
                kind: Kind::Directory,
                bucket: "",
                path: address,
            });
        };
        let kind = match scheme {
            "s3" | "s3a" => Kind::S3,
            "gs" | "gcs" => Kind::Gcs,
            "az" | "abfs" | "abfss" => Kind::Azure,
            "file" if rest.starts_with('/') => {
                return Ok(Self {
                    kind: Kind::Directory,
                    bucket: "",
                    path: rest,
                });
            }
            _ => bail!(
                "{address} is not the address of a root: write it like s3://bucket/prefix, \
                 gs://bucket/prefix, az://container/prefix or file:///directory; a server that \
                 speaks S3 is named by AWS_ENDPOINT_URL"
            ),
        };
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_bucket = !bucket.is_empty() && !bucket.contains(['@', '?', '#', ':']);
        if !is_bucket {
            bail!("{address} names no bucket: write it like {scheme}://bucket/prefix");
        }
        Ok(Self { kind, bucket, path })
    }

    fn store(&self, contact: &Arc<Contact>) -> anyhow::Result<Stores> {
        let connector = Connector(Arc::clone(contact));
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(200),
                max_backoff: Duration::from_secs(8),
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: RETRY_PATIENCE,
        };
        Ok(match self.kind {
            Kind::S3 => paged(
                AmazonS3Builder::from_env()
                    .with_bucket_name(self.bucket)
                    // Every server that speaks S3 removes one object; not every one many at once.
                    .with_config(AmazonS3ConfigKey::DisableBulkDelete, "true")
                    .with_retry(retry)
                    .with_http_connector(connector)
                    .build()?,
            ),
            Kind::Gcs => paged(
                GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(self.bucket)
                    .with_retry(retry)
                    .with_http_connector(connector)
                    .build()?,
            ),
            Kind::Azure => paged(
                MicrosoftAzureBuilder::from_env()
                    .with_container_name(self.bucket)
                    .with_retry(retry)
                    .with_http_connector(connector)
                    .build()?,
            ),
            Kind::Directory if !Path::new(self.path).is_dir() => {
                bail!("there is no such directory")
            }
            Kind::Directory => {
                let store = LocalFileSystem::new_with_prefix(self.path)?;
                (Arc::new(store.with_fsync(true)), None)
            }
        })
    }
}

/// A store, and the same where it lists page by page.
type Stores = (Arc<dyn ObjectStore>, Option<Arc<dyn PaginatedListStore>>);

fn paged(store: impl ObjectStore + PaginatedListStore) -> Stores {
    let store = Arc::new(store);
    (Arc::clone(&store) as _, Some(store))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_bucket_and_a_path_or_a_directory() {
        for (address, kind, bucket, path) in [
            ("s3://b/p/q", Kind::S3, "b", "p/q"),
            ("s3://b", Kind::S3, "b", ""),
            ("gs://b/", Kind::Gcs, "b", ""),
            ("az://c/p", Kind::Azure, "c", "p"),
            ("file:///srv/root", Kind::Directory, "", "/srv/root"),
            ("root", Kind::Directory, "", "root"),
        ] {
            let parts = Parts::of(address).unwrap();
            assert_eq!(parts, Parts { kind, bucket, path }, "{address}");
        }
        for address in [
            "https://host/bucket",
            "s3://",
            "s3:///p",
            "file://host/p",
            "s3://key:secret@b/p",
        ] {
            let error = Parts::of(address).unwrap_err().to_string();
            assert!(error.contains("write it like"), "{address}: {error}");
        }
    }
}
