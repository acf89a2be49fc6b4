//! What there is below a place: page by page, as the stores give it, up to what is kept of it.

use super::access_error::AccessError;
use super::address::Objects;
use crate::limits::{LISTING_BYTES, LISTING_ENTRY_BYTES, LISTING_PAGE_BYTES};
use futures_util::TryStreamExt;
use indicatif::BinaryBytes;
use object_store::list::PaginatedListOptions;
use object_store::path::Path as ObjectPath;
use object_store::{ListResult, ObjectMeta};

/// What is there.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The files: in all folders, or in this one.
    pub(crate) files: Vec<ObjectMeta>,
    /// The folders, where they are reported.
    pub(crate) folders: Vec<ObjectPath>,
    left_bytes: usize,
}

impl Default for Listing {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            folders: Vec::new(),
            left_bytes: LISTING_BYTES,
        }
    }
}

/// There is more than is kept.
#[derive(Debug)]
struct TooMuch;

impl Objects {
    /// The files below a place, in all its folders.
    pub(crate) async fn files(&self, below: &str) -> Result<Listing, AccessError> {
        let failed = |error| self.failure(below, &error);
        if self.pages.is_some() {
            return self.pages(below, false).await;
        }
        let mut listing = Listing::default();
        let prefix = self.path(below);
        let mut files = self.store.list(Some(&prefix));
        while let Some(file) = files.try_next().await.map_err(failed)? {
            let result = ListResult {
                common_prefixes: Vec::new(),
                objects: vec![file],
                extensions: Default::default(),
            };
            let took = listing.take(result, 0);
            took.map_err(|TooMuch| self.endless(below))?;
        }
        Ok(listing)
    }

    /// The files and the folders in a folder.
    pub(crate) async fn folder(&self, of: &str) -> Result<Listing, AccessError> {
        if self.pages.is_some() {
            return self.pages(of, true).await;
        }
        let listed = self.store.list_with_delimiter(Some(&self.path(of))).await;
        let listed = listed.map_err(|error| self.failure(of, &error))?;
        let mut listing = Listing::default();
        let took = listing.take(listed, 0);
        took.map_err(|TooMuch| self.endless(of))?;
        Ok(listing)
    }

    async fn pages(&self, below: &str, has_folders: bool) -> Result<Listing, AccessError> {
        let mut listing = Listing::default();
        let prefix = self.path(below);
        let prefix = Some(format!("{prefix}/")).filter(|prefix| prefix != "/");
        let mut token = None;
        loop {
            let options = PaginatedListOptions {
                delimiter: has_folders.then_some("/".into()),
                page_token: token.clone(),
                ..PaginatedListOptions::default()
            };
            let Some(store) = &self.pages else {
                return Ok(listing);
            };
            let page = store.list_paginated(prefix.as_deref(), options).await;
            let page = page.map_err(|error| self.failure(below, &error))?;
            let took = listing.take(page.result, LISTING_PAGE_BYTES);
            took.map_err(|TooMuch| self.endless(below))?;
            let next = page.page_token.filter(|token| !token.is_empty());
            match next {
                None => return Ok(listing),
                same if same == token => return Err(self.endless(below)),
                next => token = next,
            }
        }
    }

    fn endless(&self, below: &str) -> AccessError {
        let most = BinaryBytes(LISTING_BYTES as u64);
        AccessError::blocked(format!(
            "{}: the list of what is there has no end, or is longer than {most}{}; name a place with less \
             below it",
            self.shown(below),
            self.of_server()
        ))
    }
}

impl Listing {
    /// Takes in what has come; what that costs beside its entries is said.
    fn take(&mut self, more: ListResult, cost_bytes: usize) -> Result<(), TooMuch> {
        let paths = more.objects.iter().map(|file| &file.location);
        let paths = paths.chain(&more.common_prefixes);
        let entries = paths.map(|path| path.as_ref().len() + LISTING_ENTRY_BYTES);
        let cost_bytes = cost_bytes + entries.sum::<usize>();
        self.left_bytes = self.left_bytes.checked_sub(cost_bytes).ok_or(TooMuch)?;
        self.files.extend(more.objects);
        self.folders.extend(more.common_prefixes);
        Ok(())
    }
}
