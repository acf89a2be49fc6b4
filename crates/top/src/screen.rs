//! The terminal while `memtrace top` has it, and the loop: what comes, keys, drawing. Whatever ends
//! it, the terminal is given back as it was.

use super::app::App;
use super::draw::draw;
use super::input::{Action, take};
use super::view::View;
use super::{Feed, Recorder};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io::{self, IsTerminal, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Signals are looked for so often.
const WAIT: Duration = Duration::from_millis(100);
/// Of the time that a look takes, so many times as much passes until the next one, so that it stays
/// at a small part of one core;
const REST: u32 = 100;
/// but no more than this.
const REST_MAX: Duration = Duration::from_secs(3);
/// The age of the figures is drawn anew so often, where nothing else is.
const AGE: Duration = Duration::from_secs(1);

/// How to show it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What is shown first.
    pub view: View,
    /// Time between two looks.
    pub refresh: Duration,
    /// Whether to use colours.
    pub has_color: bool,
}

/// A signal asks to end.
static ENDS: AtomicBool = AtomicBool::new(false);
/// A signal asks to stop until another lets it go on.
static STOPS: AtomicBool = AtomicBool::new(false);
/// Whether the terminal is ours, for whoever panics.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Shows a recording until the person has seen enough.
///
/// # Errors
/// When the terminal can't be had, as [`io::Error`] in its words; what the feed says is shown on the
/// screen.
pub fn run<F: Feed>(feed: &mut F, options: &Options) -> io::Result<()> {
    end_with_signals();
    listen(&[libc::SIGTSTP]);
    let mut screen = Screen::take()?;
    let mut app = App::new(options.view);
    let mut next_look = Instant::now();
    let mut drawn = Instant::now();
    let mut is_due = true;
    loop {
        if is_to_end() {
            return Ok(());
        }
        if STOPS.swap(false, Ordering::Relaxed) {
            screen.suspend()?;
            is_due = true;
        }
        let now = Instant::now();
        if now >= next_look {
            match feed.refresh() {
                Ok(has_news) => is_due |= has_news,
                Err(error) => {
                    app.message = Some(error.to_string());
                    is_due = true;
                }
            }
            app.update(feed.live());
            app.update_deep(feed.live_mut());
            let rest = (now.elapsed() * REST).min(REST_MAX);
            next_look = now + options.refresh.max(rest);
        }
        let ages = feed.recorder() != Recorder::Closed && drawn.elapsed() >= AGE;
        if is_due || ages {
            screen.draw(|area, buffer| draw(feed, &mut app, options.has_color, area, buffer))?;
            drawn = Instant::now();
            is_due = false;
        }
        let wait = next_look.saturating_duration_since(Instant::now());
        if is_terminal_gone(wait.min(WAIT))? {
            return Ok(());
        }
        if !event::poll(Duration::ZERO)? {
            continue;
        }
        // All that was typed meanwhile, and one picture of it.
        loop {
            match take(&mut app, feed, &event::read()?) {
                Action::None => {}
                Action::Draw => is_due = true,
                Action::Suspend => STOPS.store(true, Ordering::Relaxed),
                Action::Quit => return Ok(()),
            }
            if !event::poll(Duration::ZERO)? {
                break;
            }
        }
        if is_due {
            app.update_deep(feed.live_mut());
        }
    }
}

/// Waits until there is something to read, or for so long. Answers whether the terminal is gone:
/// of that the wait of crossterm makes an endless loop.
fn is_terminal_gone(wait: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        // Keys come from the terminal by its own name.
        return event::poll(wait).map(|_| false);
    }
    let mut looked_at = [PollFd::new(&stdin, PollFlags::IN)];
    let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
    match rustix::event::poll(&mut looked_at, Some(&wait)) {
        // A signal: its flag is looked at, or the terminal has another size.
        Err(Errno::INTR) => return Ok(false),
        polled => polled?,
    };
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(looked_at[0].revents().intersects(gone))
}

/// The terminal, taken.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    fn take() -> io::Result<Self> {
        give_back_after_a_panic();
        seize()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        if terminal.is_err() {
            give_back();
        }
        Ok(Self {
            terminal: terminal?,
        })
    }

    fn draw(
        &mut self,
        draw: impl FnOnce(ratatui::layout::Rect, &mut ratatui::buffer::Buffer),
    ) -> io::Result<()> {
        self.terminal
            .draw(|frame| draw(frame.area(), frame.buffer_mut()))?;
        Ok(())
    }

    /// Gives the terminal back to the shell, and takes it when the shell lets this process go on.
    fn suspend(&mut self) -> io::Result<()> {
        give_back();
        // SAFETY: a plain number; SIGSTOP can't be caught.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
        seize()?;
        execute!(io::stdout(), Clear(ClearType::All))?;
        // Nothing of what was drawn is there: all is to be drawn anew.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn seize() -> io::Result<()> {
    enable_raw_mode()?;
    IS_OURS.store(true, Ordering::Relaxed);
    let entered = execute!(
        io::stdout(),
        EnterAlternateScreen,
        EnableMouseCapture,
        cursor::Hide
    );
    if entered.is_err() {
        give_back();
    }
    entered
}

/// Does nothing where it has been given back. What fails here can be reported to nobody.
fn give_back() {
    if IS_OURS.swap(false, Ordering::Relaxed) {
        let _ = execute!(
            io::stdout(),
            DisableMouseCapture,
            LeaveAlternateScreen,
            cursor::Show
        );
        let _ = disable_raw_mode();
    }
}

fn give_back_after_a_panic() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let reported = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            reported(panic);
        }));
    });
}

extern "C" fn note(signal: libc::c_int) {
    match signal {
        libc::SIGTSTP => STOPS.store(true, Ordering::Relaxed),
        _ => ENDS.store(true, Ordering::Relaxed),
    }
}

/// From here on a signal that asks to end is noted: whoever has something to put back does so, and
/// then ends. One that was ignored, as SIGHUP is under nohup, stays so.
pub fn end_with_signals() {
    listen(&[libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT]);
}

/// Whether a signal has asked to end.
pub fn is_to_end() -> bool {
    ENDS.load(Ordering::Relaxed)
}

/// Waits for so long, or until a signal asks to end. Answers whether one has.
pub fn is_to_end_within(length: Duration) -> bool {
    const PAUSE: Duration = Duration::from_millis(100);
    let begin = Instant::now();
    while !is_to_end() {
        let left = length.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(PAUSE));
    }
    true
}

fn listen(signals: &[libc::c_int]) {
    for &signal in signals {
        let handler = note as extern "C" fn(libc::c_int);
        // SAFETY: the handler only stores into an atomic.
        unsafe {
            if libc::signal(signal, handler as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}
