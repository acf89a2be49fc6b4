//! The exchange of a few words: JSON that is asked for.

use super::answer::message_of;
use super::client::Client;
use super::failure::Failure;
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
        let answer = self.short(path, patience).await?;
        serde_json::from_slice(&answer).map_err(|error| Failure::Malformed(error.to_string()))
    }

    async fn short(&self, path: &str, patience: Duration) -> Result<Vec<u8>, Failure> {
        let mut has_begun = false;
        let asked = async {
            let mut exchange = self.send(path, None).await?;
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
