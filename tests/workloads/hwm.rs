//! A process that only tells its own peak: what other workloads exec.

use crate::Workload;
use crate::args::Args;
use crate::sys;
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "hwm",
    help: "[--padding X]: prints its own pid, VmHWM and RSS, and ends",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    // Others lengthen the command line with it.
    args.text("padding", "");
    let pid = std::process::id();
    // Printed once for nothing, so that printing touches no new page after the reading.
    for (kind, is_final) in [("rehearsal", false), ("final", true)] {
        let vmhwm = sys::status().vmhwm_bytes;
        let walked = sys::walked_rss_bytes();
        sys::say(&format!(
            "{{\"hwm\":\"{kind}\",\"pid\":{pid},\"vmhwm_bytes\":{vmhwm},\
             \"walked_bytes\":{walked}}}"
        ))?;
        sys::exit_or_rehearse(is_final);
    }
    unreachable!("the final round ends the process")
}
