//! Goes over memory as a step function of time: what processes hold at an instant, their sums,
//! and what is measured while time goes by. It knows no table and no name: `analyze` says who
//! belongs together and what is asked, and makes findings of the answers.

mod amounts;
mod engine;
mod gauge;
mod lane;
mod latest;
mod series;
mod stack;
mod thin;
mod track;

pub use amounts::{Amounts, Sum, Totals};
pub use engine::{Change, Observe, Planned, State, Sweep};
pub use gauge::{Gauge, Gauged, Readings, in_order};
pub use lane::{CURVE_AFTER, High, Lane, LaneId, Lanes};
use latest::Latest;
pub use series::Series;
pub use series::SeriesPoint;
pub use stack::{Kept, Stack};
pub use thin::Thinned;
pub use track::{Member, Track};
