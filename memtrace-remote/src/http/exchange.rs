//! The two exchanges of a few words: JSON that is asked for, and something that is to be done.

use super::answer::message_of;
use super::client::Client;
use super::failure::Failure;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

/// The longest answer.
const ANSWER_MAX: usize = 4 << 20;

impl Client {
    /// What the server has at a path.
    ///
    /// # Errors
    /// When it does not answer within `patience`, with another status than 200, or something else.
    pub(crate) async fn json<T: DeserializeOwned>(
        &self,
        path: &str,
        patience: Duration,
    ) -> Result<T, Failure> {
        let answer = self.short(path, None, patience).await?;
        serde_json::from_slice(&answer).map_err(|error| Failure::Malformed(error.to_string()))
    }

    /// Asks the server to do something, with nothing more to say about it.
    ///
    /// # Errors
    /// When it does not answer within `patience`, or with another status than 200.
    pub(crate) async fn post(&self, path: &str, patience: Duration) -> Result<(), Failure> {
        // Some servers read JSON before they look whether they need any.
        let nothing = Bytes::from_static(b"{}");
        self.short(path, Some(nothing), patience).await.map(drop)
    }

    /// The status that a path answers with, whatever else it says.
    ///
    /// # Errors
    /// When it does not answer within `patience`.
    pub(crate) async fn status(&self, path: &str, patience: Duration) -> Result<u16, Failure> {
        let answered = timeout(patience, self.send(path, None)).await;
        let timed_out = Failure::TimedOut {
            after: patience,
            has_begun: false,
        };
        Ok(answered.unwrap_or(Err(timed_out))?.status())
    }

    async fn short(
        &self,
        path: &str,
        body: Option<Bytes>,
        patience: Duration,
    ) -> Result<Vec<u8>, Failure> {
        let mut has_begun = false;
        let asked = async {
            let mut exchange = self.send(path, body).await?;
            has_begun = true;
            let status = exchange.status();
            let answer = exchange.whole(ANSWER_MAX).await?;
            match status {
                200 => Ok(answer),
                _ => Err(Failure::Status {
                    status,
                    message: message_of(&answer),
                }),
            }
        };
        let answered = timeout(patience, asked).await;
        answered.unwrap_or(Err(Failure::TimedOut {
            after: patience,
            has_begun,
        }))
    }
}
