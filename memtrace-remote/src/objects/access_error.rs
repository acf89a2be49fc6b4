//! What a bucket or a directory refused, in words that name the way out.

use super::failure::Unsound;
use crate::http::in_words;
use object_store::Error;
use std::error::Error as _;
use std::io::ErrorKind;

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessError {
    pub(crate) words: String,
    pub(crate) way: Way,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Trying again can help.
    Again,
    /// Not before somebody has done something.
    Blocked,
    /// It is not there.
    Absent,
    /// It is there already.
    Taken,
    /// This store can't do it at all.
    Unable,
}

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    S3,
    Gcs,
    Azure,
    Directory,
}

impl Kind {
    /// Where credentials come from.
    fn credentials(self) -> &'static str {
        match self {
            Self::S3 => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN where there \
                 is one), as `aws configure export-credentials --format env` prints them, or run \
                 where the machine or the pod has a role"
            }
            Self::Gcs => {
                "set GOOGLE_APPLICATION_CREDENTIALS to a key file, run `gcloud auth \
                 application-default login`, or run where the machine has a service account"
            }
            Self::Azure => {
                "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or \
                 AZURE_STORAGE_SAS_TOKEN, or run where the machine has an identity"
            }
            Self::Directory => "run it as a user who may write there",
        }
    }
}

impl AccessError {
    pub(crate) fn blocked(words: String) -> Self {
        let way = Way::Blocked;
        Self { words, way }
    }

    /// What an error of `object_store` means for a place that is shown like this.
    pub(super) fn of(error: &Error, kind: Kind, shown: &str) -> Self {
        let said = said(error);
        let all = in_words(error);
        let has = |words: &[&str]| words.iter().any(|word| all.contains(word));
        let (way, words) = match error {
            Error::AlreadyExists { .. } | Error::Precondition { .. } => {
                (Way::Taken, format!("{shown} is there already"))
            }
            Error::NotImplemented { .. } | Error::NotSupported { .. } => {
                (Way::Unable, format!("{shown}: {said}"))
            }
            _ if code(&said) == "NotImplemented" => (Way::Unable, format!("{shown}: {said}")),
            _ if has(&[
                "NoSuchBucket",
                "ContainerNotFound",
                "The specified bucket does not exist",
            ]) =>
            {
                (
                    Way::Blocked,
                    format!("the bucket of {shown} does not exist: make it, or check its name"),
                )
            }
            _ if has(&[
                "ExpiredToken",
                "TokenRefreshRequired",
                "token has expired",
                "RequestExpired",
            ]) =>
            {
                (
                    Way::Blocked,
                    format!(
                        "the credentials for {shown} have expired: {}",
                        kind.credentials()
                    ),
                )
            }
            _ if has(&[
                "InvalidAccessKeyId",
                "SignatureDoesNotMatch",
                "InvalidToken",
                "AuthenticationFailed",
            ]) =>
            {
                (
                    Way::Blocked,
                    format!(
                        "the credentials for {shown} are wrong ({}): {}",
                        code(&said),
                        kind.credentials()
                    ),
                )
            }
            _ if has(&[
                "169.254.",
                "metadata.google.internal",
                "MissingCredentials",
                "Missing access key",
            ]) =>
            {
                (
                    Way::Blocked,
                    format!(
                        "there are no credentials for {shown}: {}",
                        kind.credentials()
                    ),
                )
            }
            Error::NotFound { .. } => (Way::Absent, format!("{shown} is not there")),
            _ if is_denied(error, &said) => (
                Way::Blocked,
                format!(
                    "no permission for {shown}: the credentials need the right to list, read and write there"
                ),
            ),
            Error::Unauthenticated { .. } => (
                Way::Blocked,
                format!("{shown} asks for credentials: {}", kind.credentials()),
            ),
            _ if kind == Kind::Directory => of_file(error, &said, shown),
            _ if is_unsound(error) => (Way::Blocked, format!("{shown}: {said}")),
            _ => (Way::Again, format!("{shown}: {said}")),
        };
        Self { words, way }
    }
}

/// Whether another try would end as this one did.
fn is_unsound(error: &Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<Unsound>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn is_denied(error: &Error, said: &str) -> bool {
    let codes = [
        "AccessDenied",
        "AuthorizationPermissionMismatch",
        "AllAccessDisabled",
    ];
    matches!(error, Error::PermissionDenied { .. }) || codes.contains(&code(said))
}

/// What file systems without hard links say when one is made: only by one does a file get a name
/// that nobody else has.
const WITHOUT_LINKS: [i32; 3] = [libc::EPERM, libc::EOPNOTSUPP, libc::ENOSYS];

/// What a file system refused.
fn of_file(error: &Error, said: &str, shown: &str) -> (Way, String) {
    let mut cause = error.source();
    let mut system = None;
    while let Some(error) = cause {
        system = system.or(error.downcast_ref::<std::io::Error>());
        cause = error.source();
    }
    let errno = system.and_then(std::io::Error::raw_os_error);
    if errno.is_some_and(|errno| WITHOUT_LINKS.contains(&errno)) {
        return (Way::Unable, format!("{shown}: {said}"));
    }
    match system.map(std::io::Error::kind) {
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            let words = format!("the disk of {shown} is full: make room there");
            (Way::Blocked, words)
        }
        Some(ErrorKind::PermissionDenied) => {
            let words = format!(
                "no permission for {shown}: {}",
                Kind::Directory.credentials()
            );
            (Way::Blocked, words)
        }
        Some(ErrorKind::ReadOnlyFilesystem) => (
            Way::Blocked,
            format!("{shown} is on a file system that is read-only"),
        ),
        _ => (Way::Again, format!("{shown}: {said}")),
    }
}

/// What is behind an error, without the XML around what a server says and without what changes from
/// try to try.
fn said(error: &Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    let words = innermost.to_string();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = match tag(&words, "Message") {
        Some(message) => format!("{} ({message})", code(&words)),
        None => words,
    };
    // A server may say anything at any length.
    let printable = words.chars().filter(|letter| !letter.is_control());
    printable.take(600).collect()
}

/// The code that a server gives.
fn code(said: &str) -> &str {
    tag(said, "Code").unwrap_or_else(|| said.split(' ').next().unwrap_or_default())
}

fn tag<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inner, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inner)
}
