//! Screens of golden runs that come by and by.

use super::app::App;
use super::draw::draw;
use super::input::{Action, take};
use super::once::lines;
use super::{Feed, Recorder, View, once};
use memtrace_analyze::Live;
use memtrace_golden::{RUNS, Script, Stream, boot};
use memtrace_model::{BootNs, Bytes};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyModifiers, MouseButton, MouseEventKind};
use ratatui::crossterm::event::{KeyEvent, MouseEvent};
use std::convert::Infallible;

/// A run up to some time.
struct Run {
    live: Live,
    stream: Stream,
    recorder: Recorder,
    now: BootNs,
    marks: Vec<String>,
}

impl Run {
    fn of(run: Script) -> Self {
        let stream = Stream::of(run);
        Self {
            live: Live::new(stream.info.clone(), None),
            stream,
            recorder: Recorder::Recording,
            now: BootNs(0),
            marks: Vec::new(),
        }
    }

    fn named(name: &str) -> Self {
        let run = RUNS.iter().find(|(known, ..)| *known == name);
        Self::of(run.expect("a run").1())
    }

    /// Goes on until so many seconds, in steps of one.
    fn until(mut self, seconds: f64) -> Self {
        let mut at = self.now.max(boot(0.0));
        while at < boot(seconds) {
            at = boot(seconds).min(BootNs(at.0 + 1_000_000_000));
            self.now = at;
            let Ok(_) = self.refresh();
        }
        self
    }
}

impl Feed for Run {
    type Error = Infallible;

    fn refresh(&mut self) -> Result<bool, Infallible> {
        self.stream.go_to(self.now);
        let Ok(has_news) = self.live.take(&mut self.stream);
        if self.live.is_contradicted() {
            self.live = Live::new(self.stream.info.clone(), None);
            self.stream.begin_again();
            let Ok(_) = self.live.take(&mut self.stream);
        }
        Ok(has_news)
    }

    fn live(&self) -> &Live {
        &self.live
    }

    fn live_mut(&mut self) -> &mut Live {
        &mut self.live
    }

    fn recorder(&self) -> Recorder {
        self.recorder
    }

    fn boot(&self) -> BootNs {
        BootNs(self.now.0 + 400_000_000)
    }

    fn mark(&mut self, name: &str) -> Result<(), String> {
        self.marks.push(name.to_owned());
        Ok(())
    }
}

/// A person at a terminal.
struct Person {
    run: Run,
    app: App,
    terminal: Terminal<TestBackend>,
}

impl Person {
    fn at(run: Run, width: u16, height: u16) -> Self {
        let backend = TestBackend::new(width, height);
        Self {
            run,
            app: App::new(View::Tree),
            terminal: Terminal::new(backend).expect("a terminal"),
        }
    }

    fn screen(&mut self) -> Vec<String> {
        self.app.update(self.run.live());
        self.app.update_deep(self.run.live_mut());
        let (run, app) = (&self.run, &mut self.app);
        let drawn = self.terminal.draw(|frame| {
            let area = frame.area();
            draw(run, app, true, area, frame.buffer_mut());
        });
        drawn.expect("a screen");
        lines(self.terminal.backend().buffer())
    }

    fn key(&mut self, code: KeyCode) -> Action {
        let event = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        let action = take(&mut self.app, &mut self.run, &event);
        self.screen();
        action
    }

    fn type_in(&mut self, text: &str) {
        text.chars().for_each(|letter| {
            self.key(KeyCode::Char(letter));
        });
    }

    fn click(&mut self, text: &str) {
        let lines = self.screen();
        let row = lines.iter().position(|line| line.contains(text));
        let row = row.unwrap_or_else(|| panic!("no {text} in {lines:#?}"));
        let before = lines[row].split(text).next().unwrap_or_default();
        let event = Event::Mouse(MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column: before.chars().count() as u16,
            row: row as u16,
            modifiers: KeyModifiers::NONE,
        });
        take(&mut self.app, &mut self.run, &event);
        self.screen();
    }

    fn has(&mut self, text: &str) -> bool {
        self.screen().iter().any(|line| line.contains(text))
    }
}

#[test]
fn every_view_fits_80_columns() {
    let views = [
        ("tree", "trainer_with_vllm", 400.0),
        ("roles", "ray_with_vllm", 60.0),
        ("processes", "oom_kill", 200.0),
        ("ledger", "shared", 12.0),
        ("gpus", "vllm_on_gpus", 60.0),
        ("phases", "vllm_start_up", 60.0),
        ("stacks", "grown_by_lines", 40.0),
    ];
    for (place, (view, name, seconds)) in views.into_iter().enumerate() {
        let mut person = Person::at(Run::named(name).until(seconds), 80, 24);
        person.key(KeyCode::Char(char::from(b'1' + place as u8)));
        insta::assert_snapshot!(format!("{view}_of_{name}"), person.screen().join("\n"));
    }
}

#[test]
fn no_figure_is_cut_in_its_middle() {
    let mut run = Script::command(&["python3", "serve.py"], 50_000.0);
    run.process(700, None, 0.0, "/usr/bin/python3 serve.py");
    run.process(701, Some(700), 1.0, "/usr/bin/python3 work.py");
    run.mem(700, 2.0, [30.0, 5.0, 0.0]);
    run.mem(701, 36_480.0, [38.0, 0.0, 0.0]);
    run.edit(701, |process| {
        process.peak_rss_bytes = Some(Bytes(38 << 20));
        process.peak_error_bytes = Some(Bytes(768 << 10));
    });
    run.exit(701, 36_490.0, 0);
    let mut run = Run::of(run);
    run.now = boot(40_000.0);
    let Ok(_) = run.refresh();
    let mut person = Person::at(run, 80, 24);
    let lines = person.screen();
    let ended = lines
        .iter()
        .find(|line| line.trim_start().starts_with("701"));
    let ended = ended.expect("its line");
    assert!(ended.contains("38.0 MiB "), "{ended}");
    assert!(ended.contains("10h08m10s "), "{ended}");
    assert!(!ended.contains(['…', '±']), "{ended}");
}

#[test]
fn the_filter_is_shown_beside_the_views_also_where_there_is_little_room() {
    let mut person = Person::at(Run::named("oom_kill").until(200.0), 80, 24);
    person.type_in("3/server");
    person.key(KeyCode::Enter);
    assert!(person.has(" 1   2   3 processes   4 "));
    assert!(person.has("filter: server"));
}

#[test]
fn a_kill_is_in_its_row_of_the_tree_too() {
    let mut person = Person::at(Run::named("oom_kill").until(200.0), 80, 24);
    let screen = person.screen();
    let killed = screen.iter().find(|line| line.starts_with("    510"));
    assert!(killed.expect("a row").contains("OOM kill"), "{screen:#?}");
    insta::assert_snapshot!("tree_of_oom_kill", screen.join("\n"));
}

#[test]
fn the_page_on_top_shows_a_screen_of_today() {
    let snapshot = include_str!("snapshots/memtrace_top__tests__tree_of_trainer_with_vllm.snap");
    let screen = snapshot.rsplit("---\n").next().unwrap();
    let page = include_str!("../../../docs/top.md");
    assert!(page.contains(screen), "the page does not show:\n{screen}");
}

#[test]
fn every_run_is_shown_in_every_view_at_every_size() {
    for (name, run, _) in RUNS {
        let run = Run::of(run()).until(900.0);
        let mut person = Person::at(run, 80, 24);
        for (width, height) in [(80, 24), (200, 60), (40, 10), (20, 3), (1, 1)] {
            person.terminal.backend_mut().resize(width, height);
            for view in View::ALL {
                person.app.go_to(view);
                let screen = person.screen();
                assert_eq!(screen.len(), usize::from(height), "{name}");
                let hidden = |line: &String| line.contains(memtrace_report::is_hidden);
                assert!(!screen.iter().any(hidden), "{name}: {screen:#?}");
            }
        }
    }
}

#[test]
fn a_high_terminal_has_a_high_curve_that_stands_on_the_line_of_a_low_one() {
    let screen =
        |height| Person::at(Run::named("trainer_with_vllm").until(100.0), 80, height).screen();
    let curve = |screen: &[String]| {
        let lowest = screen.iter().position(|line| line.contains(" last "));
        lowest.expect("a curve")
    };
    let (low, high) = (screen(24), screen(48));
    let (below, lowest) = (curve(&low), curve(&high));
    assert_eq!(lowest - below, 11, "{high:#?}");
    // Whatever is highest reaches from the lowest line to the top.
    let place = low[below].chars().position(|level| level == '█').unwrap();
    for line in &high[below..=lowest] {
        assert_eq!(line.chars().nth(place), Some('█'), "{high:#?}");
    }
    assert!(!high[below].contains('▁') && high[lowest].contains('█'));
}

#[test]
fn a_small_terminal_says_what_it_leaves_out() {
    let mut person = Person::at(Run::named("trainer_with_vllm").until(100.0), 60, 12);
    let screen = person.screen();
    let last = screen.last().expect("a line");
    assert!(
        last.contains("80x24 shows more") && last.contains("AT"),
        "{last}"
    );
    assert!(screen[0].contains("data 0.4 s old"), "{}", screen[0]);
}

#[test]
fn keys_change_the_view_the_order_and_what_is_shown() {
    let mut person = Person::at(Run::named("trainer_with_vllm").until(400.0), 120, 30);
    person.screen();
    assert_eq!(person.key(KeyCode::Tab), Action::Draw);
    assert_eq!(person.app.view, View::Roles);
    person.key(KeyCode::BackTab);
    assert_eq!(person.app.view, View::Tree);
    person.key(KeyCode::Char('3'));
    assert_eq!(person.app.view, View::Processes);
    person.key(KeyCode::Char('/'));
    person.type_in("zzz");
    assert!(person.has("No process fits the filter"));
    person.key(KeyCode::Esc);
    assert!(!person.has("No process fits the filter"));
    person.key(KeyCode::Char('s'));
    assert!(person.has("ANON▼"));
    person.key(KeyCode::Char('?'));
    assert!(person.has("the peak so far, and back"));
    person.key(KeyCode::Char('x'));
    assert!(!person.has("the peak so far, and back"));
    assert_eq!(person.key(KeyCode::Char('q')), Action::Quit);
    let control = |letter| Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
    let mut press = |letter| take(&mut person.app, &mut person.run, &control(letter));
    assert_eq!((press('c'), press('z')), (Action::Quit, Action::Suspend));
}

#[test]
fn lines_are_ordered_only_by_columns_that_are_shown() {
    let mut person = Person::at(Run::named("trainer_with_vllm").until(400.0), 80, 24);
    person.key(KeyCode::Char('3'));
    let titles = |person: &mut Person| {
        let ordered = |line: &String| line.contains('▼');
        person.screen().into_iter().find(ordered)
    };
    let first = titles(&mut person).expect("an order that shows");
    assert!(!first.contains("SHMEM"), "{first}");
    for _ in 0..8 {
        person.key(KeyCode::Char('s'));
        assert!(titles(&mut person).is_some(), "{:?}", person.app.sort());
    }
}

/// One that grows by 10 MiB a second to 300 MiB and then frees it, and a child that ends.
fn up_and_down() -> Script {
    let mut run = Script::command(&["python3", "grow.py"], 90.0);
    run.process(10, None, 0.0, "python3 grow.py");
    run.process(11, Some(10), 5.0, "python3 child.py");
    run.mem(11, 5.0, [700.0, 1.0, 0.0]);
    run.exit(11, 8.0, 0);
    for second in 0..80 {
        let anon = if second <= 30 {
            f64::from(second) * 10.0
        } else {
            20.0
        };
        run.mem(10, f64::from(second), [anon, 1.0, 0.0]);
    }
    run
}

#[test]
fn one_can_look_back_pause_and_go_to_the_peak() {
    let mut person = Person::at(Run::of(up_and_down()).until(70.0), 100, 24);
    assert!(person.has("Held now 20.0 MiB"), "{:#?}", person.screen());
    assert!(person.has("peak so far 770 MiB"), "{:#?}", person.screen());
    person.key(KeyCode::Char('p'));
    assert!(
        person.has("At the peak, +7.0s: held 770 MiB"),
        "{:#?}",
        person.screen()
    );
    person.key(KeyCode::Char('p'));
    assert!(person.has("Held now"));
    for _ in 0..40 {
        person.key(KeyCode::Left);
    }
    assert!(
        person.has("Back at +30.0s: held 300 MiB"),
        "{:#?}",
        person.screen()
    );
    person.key(KeyCode::Right);
    assert!(
        person.has("Back at +31.0s: held 20.0 MiB"),
        "{:#?}",
        person.screen()
    );
    person.key(KeyCode::Esc);
    person.key(KeyCode::Char(' '));
    let paused = person.screen();
    person.run = person.run.until(75.0);
    let later = person.screen();
    assert_ne!(later[2], paused[2], "the curve goes on");
    assert_eq!((&later[1], &later[3..]), (&paused[1], &paused[3..]));
    person.key(KeyCode::Char(' '));
    assert!(person.has("Held now"));
}

#[test]
fn who_has_ended_stays_with_the_exact_peak_until_it_is_hidden() {
    let mut person = Person::at(Run::of(up_and_down()).until(70.0), 100, 24);
    let line = |person: &mut Person| {
        let screen = person.screen();
        screen.into_iter().find(|line| line.contains("child.py"))
    };
    let shown = line(&mut person).expect("a line");
    assert!(
        shown.contains("701 MiB") && shown.contains("+8.0s"),
        "{shown}"
    );
    person.key(KeyCode::Char('d'));
    assert_eq!(line(&mut person), None);
    assert!(person.has("ended hidden"));
}

#[test]
fn branches_fold_by_key_and_by_mouse_and_a_title_orders() {
    let mut person = Person::at(Run::of(up_and_down()).until(70.0), 110, 24);
    assert!(person.has("child.py"));
    person.key(KeyCode::Home);
    person.key(KeyCode::Enter);
    assert!(!person.has("child.py") && person.has("+ python3 grow.py"));
    person.click("+ python3 grow.py");
    assert!(person.has("child.py"));
    person.click("3 processes");
    assert_eq!(person.app.view, View::Processes);
    person.click("PEAK");
    assert_eq!(person.app.sort(), (6, false));
    person.click("PEAK");
    assert_eq!(person.app.sort(), (6, true));
}

#[test]
fn a_moment_is_marked_by_a_name_that_is_typed() {
    let mut person = Person::at(Run::of(up_and_down()).until(10.0), 100, 24);
    person.key(KeyCode::Char('m'));
    person.type_in("loadedx");
    person.key(KeyCode::Backspace);
    assert!(person.has("mark this moment as: loaded_"));
    person.key(KeyCode::Enter);
    assert!(person.has("loaded is marked"));
    person.key(KeyCode::Char('m'));
    person.key(KeyCode::Esc);
    assert_eq!(person.run.marks, ["loaded"]);
}

#[test]
fn a_recorder_that_is_gone_is_reported() {
    let mut person = Person::at(Run::of(up_and_down()).until(10.0), 100, 24);
    person.run.recorder = Recorder::Gone;
    assert!(person.has("recorder gone, data 0.4 s old"));
    assert!(person.has("Held last") && !person.has("Held now"));
    person.run.recorder = Recorder::Closed;
    assert!(person.has("recording closed"));
}

#[test]
fn once_is_text_without_keys() {
    let mut run = Run::of(up_and_down()).until(70.0);
    let text = once(&mut run, View::Processes, 100, None);
    assert!(text.lines().all(|line| line.chars().count() <= 100));
    assert!(
        text.contains("python3 grow.py") && !text.contains("q quit"),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
}
