//! Processes whose RSS changes all the time.

use crate::args::Args;
use crate::sys::{self, Mapping, Random};
use crate::{Workload, idle};
use std::io;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "changers",
    help: "--processes N --bytes B --period-ms P: RSS moves within B until stdin closes",
    run,
};

fn run(args: &Args) -> io::Result<()> {
    let processes = args.number("processes", 20)?;
    let bytes = args.size("bytes", 16 << 20)?;
    let period_ns = args.number("period-ms", 50)?.cast_signed() * 1_000_000;
    let children = idle::start(processes, |index| {
        // Set up is where idle processes are held, so the changing happens in a thread.
        let mapping = Mapping::anon(bytes)?;
        mapping.advise(libc::MADV_NOHUGEPAGE)?;
        let change = move || change_for_ever(&mapping, bytes, period_ns, Random::new(index + 1));
        std::thread::Builder::new().spawn(change).map(drop)
    })?;
    idle::finish(&children)
}

fn change_for_ever(mapping: &Mapping, bytes: usize, period_ns: i64, mut random: Random) {
    let mut resident = 0;
    loop {
        let next = usize::try_from(random.below(bytes as u64)).unwrap_or(0);
        let next = next / sys::page_size() * sys::page_size();
        if next > resident {
            mapping.touch_range(resident, next);
        } else if let Err(error) = mapping.drop_range(next, resident) {
            eprintln!("child {}: {error}", std::process::id());
            sys::exit(1)
        }
        resident = next;
        sys::sleep_ns(period_ns);
    }
}
