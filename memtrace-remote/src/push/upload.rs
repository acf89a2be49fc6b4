//! One file into the store: whole where it is small, else piece by piece, so that memory does not
//! go by its size. A part gets its name only when all of it is there, and takes nobody's.

use super::limit::Limit;
use crate::objects::{AccessError, Objects, Way};
use crate::stop::Stop;
use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{Error, MultipartUpload, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// S3 takes no smaller pieces of a file, but the last. Some files are under way at once.
pub(super) const PIECE_BYTES: u64 = 5 << 20;

/// What became of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Put {
    Sent,
    /// It was there, with its size.
    There,
}

/// Why a file is not there.
#[derive(Debug)]
pub(super) enum NotPut {
    /// Something else has its name, of so many bytes.
    Other {
        bytes: u64,
    },
    /// It could not be read here.
    Source(io::Error),
    AccessError(AccessError),
    Stopped,
}

impl From<AccessError> for NotPut {
    fn from(failure: AccessError) -> Self {
        Self::AccessError(failure)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Uploads<'a> {
    pub(super) objects: &'a Objects,
    pub(super) limit: &'a Limit,
    pub(super) stop: &'a Stop,
}

impl Uploads<'_> {
    /// A file that must not take the place of another.
    pub(super) async fn create(&self, at: &str, file: &File, size: u64) -> Result<Put, NotPut> {
        if size > PIECE_BYTES {
            // A store completes pieces whatever has their name by then.
            if let Some(there) = self.size(at).await? {
                return same(there, size);
            }
            return self.pieces(at, file, size, true).await;
        }
        if !self.objects.has_create()
            && let Some(there) = self.size(at).await?
        {
            return same(there, size);
        }
        let payload = self.whole(file, size).await?;
        match self.put_new(at, payload).await {
            Ok(()) => Ok(Put::Sent),
            Err(failure) if failure.way == Way::Taken => match self.size(at).await? {
                // Also where an answer got lost when all had arrived.
                Some(there) => same(there, size),
                None => Err(NotPut::AccessError(AccessError {
                    way: Way::Again,
                    ..failure
                })),
            },
            Err(failure) => Err(failure.into()),
        }
    }

    /// Bytes under a name that nobody has. Where the store can't see to that, the name is asked for
    /// before.
    pub(super) async fn put_new(&self, at: &str, payload: PutPayload) -> Result<(), AccessError> {
        if self.objects.has_create() {
            match self.put(at, payload.clone(), PutMode::Create).await {
                Err(failure) if failure.way == Way::Unable => self.objects.note_no_create(),
                put => return put,
            }
        }
        if self.size(at).await?.is_some() {
            let words = format!("{} is there already", self.objects.shown(at));
            let way = Way::Taken;
            return Err(AccessError { words, way });
        }
        self.put(at, payload, PutMode::Overwrite).await
    }

    /// A file that takes the place of what is there.
    pub(super) async fn replace(&self, at: &str, file: &File, size: u64) -> Result<Put, NotPut> {
        if size > PIECE_BYTES {
            return self.pieces(at, file, size, false).await;
        }
        let payload = self.whole(file, size).await?;
        self.put(at, payload, PutMode::Overwrite).await?;
        Ok(Put::Sent)
    }

    /// Bytes in the place of what is there.
    pub(super) async fn put_over(&self, at: &str, payload: PutPayload) -> Result<(), AccessError> {
        self.put(at, payload, PutMode::Overwrite).await
    }

    /// How large what is there is.
    pub(super) async fn size(&self, at: &str) -> Result<Option<u64>, AccessError> {
        let store = &self.objects.store;
        match store.head(&self.objects.path(at)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.objects.failure(at, &error)),
        }
    }

    async fn put(&self, at: &str, payload: PutPayload, mode: PutMode) -> Result<(), AccessError> {
        self.objects.check_way(at).await?;
        let store = &self.objects.store;
        let options = PutOptions::from(mode);
        let put = store
            .put_opts(&self.objects.path(at), payload, options)
            .await;
        put.map(|_| self.objects.note_heard())
            .map_err(|error| self.objects.failure(at, &error))
    }

    async fn whole(&self, file: &File, size: u64) -> Result<PutPayload, NotPut> {
        self.limit.take(size, || self.objects.note_heard()).await;
        piece(file, 0, size)
            .map(PutPayload::from)
            .map_err(NotPut::Source)
    }

    async fn pieces(&self, at: &str, file: &File, size: u64, is_new: bool) -> Result<Put, NotPut> {
        self.objects.check_way(at).await?;
        let path = self.objects.path(at);
        let begun = self.objects.store.put_multipart(&path).await;
        let mut upload = begun.map_err(|error| self.objects.failure(at, &error))?;
        let outcome = self
            .send_pieces(&mut *upload, &path, at, file, size, is_new)
            .await;
        if !matches!(outcome, Ok(Put::Sent)) {
            // What is left of it costs its owner money; a store that is gone can't be reported.
            let _ = upload.abort().await;
        }
        outcome
    }

    async fn send_pieces(
        &self,
        upload: &mut dyn MultipartUpload,
        path: &ObjectPath,
        at: &str,
        file: &File,
        size: u64,
        is_new: bool,
    ) -> Result<Put, NotPut> {
        let failure = |error: Error| NotPut::AccessError(self.objects.failure(at, &error));
        let mut begin = 0;
        while begin < size {
            let length = PIECE_BYTES.min(size - begin);
            let mut stop = self.stop.clone();
            let put = async {
                self.limit.take(length, || self.objects.note_heard()).await;
                let bytes = piece(file, begin, length).map_err(NotPut::Source)?;
                upload.put_part(bytes.into()).await.map_err(failure)?;
                self.objects.note_heard();
                Ok::<(), NotPut>(())
            };
            tokio::select! {
                put = put => put?,
                () = stop.wished() => return Err(NotPut::Stopped),
            }
            begin += length;
        }
        if is_new && let Some(there) = self.size(at).await? {
            return same(there, size);
        }
        if let Err(error) = upload.complete().await {
            // The answer can get lost when all has arrived.
            let there = self.objects.store.head(path).await;
            if there.is_ok_and(|meta| meta.size == size) && is_new {
                return Ok(Put::Sent);
            }
            return Err(failure(error));
        }
        Ok(Put::Sent)
    }
}

fn same(there: u64, size: u64) -> Result<Put, NotPut> {
    match there == size {
        true => Ok(Put::There),
        false => Err(NotPut::Other { bytes: there }),
    }
}

fn piece(file: &File, begin: u64, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, begin)?;
    Ok(bytes.into())
}
