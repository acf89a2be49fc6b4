//! The two exchanges of a few words: JSON that is asked for, and something that is to be done.

use super::client::Client;
use super::failure::Failure;
use super::gathered::Gathered;
use crate::limits::ANSWER_BYTES;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

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
        let answer = self.short(path, None, (patience, ANSWER_BYTES)).await?;
        understood(&answer)
    }

    /// What the server says to something, in no more than so many bytes.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn json_to<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Bytes,
        within: (Duration, usize),
    ) -> Result<T, Failure> {
        let answer = self.short(path, Some(body), within).await?;
        understood(&answer)
    }

    /// The same as it comes.
    ///
    /// # Errors
    /// As above, but for what it says.
    pub(crate) async fn bytes_to(
        &self,
        path: &str,
        body: Bytes,
        within: (Duration, usize),
    ) -> Result<Bytes, Failure> {
        let answer = self.short(path, Some(body), within).await?;
        Ok(Bytes::copy_from_slice(answer.bytes()))
    }

    /// Asks the server to do something, with nothing more to say about it.
    ///
    /// # Errors
    /// When it does not answer within `patience`, or with another status than 200.
    pub(crate) async fn post(&self, path: &str, patience: Duration) -> Result<(), Failure> {
        // Some servers read JSON before they look whether they need any.
        let nothing = Bytes::from_static(b"{}");
        let within = (patience, ANSWER_BYTES);
        self.short(path, Some(nothing), within).await.map(drop)
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
        (patience, most): (Duration, usize),
    ) -> Result<Gathered, Failure> {
        let mut has_begun = false;
        let asked = async {
            let mut exchange = self.send(path, body).await?;
            has_begun = true;
            match exchange.status() {
                200 => exchange.whole(most).await,
                _ => Err(exchange.refused().await),
            }
        };
        let answered = timeout(patience, asked).await;
        answered.unwrap_or(Err(Failure::TimedOut {
            after: patience,
            has_begun,
        }))
    }
}

fn understood<T: DeserializeOwned>(answer: &Gathered) -> Result<T, Failure> {
    let understood = serde_json::from_slice(answer.bytes());
    understood.map_err(|error| Failure::Malformed(error.to_string()))
}
