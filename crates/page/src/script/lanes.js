// A lane for each process, from birth to end, in the order of the tree, coloured by its RSS. Only
// what is in sight is drawn, so there can be thousands.

const LANE_HEIGHT = 16;
const NAMES_WIDTH = 316;
const SMALLEST_RSS = 1 << 20;

/**
 * @typedef {object} Lane
 * @property {PageProcess} process
 * @property {number} depth
 * @property {number} begin
 * @property {number} end
 * @property {{ from: number, bytes: Maybe }[]} levels
 * @property {string} growth How fast it grows, where it does so steadily.
 * @property {string} words What the filter looks at.
 */

class Lanes {
  /** @param {Recorded} all */
  constructor({ doc, view, clock }) {
    this.view = view;
    this.clock = clock;
    this.lanes = lanesOf(doc, view.end);
    this.shown = this.lanes;
    this.most = this.lanes.reduce((most, { process }) => Math.max(most, process.peak_bytes ?? 0), SMALLEST_RSS * 2);
    /** @type {number | null} */
    this.row = null;
    this.canvas = el('canvas', {});
    this.spacer = el('div', { class: 'spacer' });
    this.status = el('p', { class: 'status', 'aria-live': 'polite' });
    /** @type {HTMLElement} */
    this.element = el(
      'div',
      {
        class: 'lanes',
        tabindex: 0,
        role: 'application',
        'aria-roledescription': 'lanes',
        'aria-label': 'processes over time. Up and down choose a process, left and right move the cursor, Enter pins it.',
        onscroll: () => this.draw(),
        onkeydown: (event) => this.key(event),
        onmousemove: (event) => this.hover(event),
        onmouseleave: () => this.leave(),
        onclick: (event) => view.click(this.instant(event), event.detail),
        ondblclick: () => view.reset(),
      },
      this.spacer,
    );
    this.spacer.append(this.canvas);
    // Asking the element each time would have the browser lay the page out again.
    this.width = 0;
    this.height = 0;
    new ResizeObserver(() => {
      this.width = this.element.clientWidth;
      this.height = this.element.clientHeight;
      this.draw();
    }).observe(this.element);
    view.watch({ zoomed: () => this.draw(), pointed: () => this.draw(), pinned: () => this.draw() });
    this.filter('');
  }

  /** @param {string} text */
  filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.shown = this.lanes.filter((lane) => words.every((word) => lane.words.includes(word)));
    this.row = null;
    this.spacer.style.height = `${Math.max(1, this.shown.length) * LANE_HEIGHT}px`;
    this.element.style.height = `${Math.min(26, Math.max(2, this.shown.length)) * LANE_HEIGHT + 2}px`;
    this.element.scrollTop = 0;
    this.tell();
    this.draw();
  }

  get hasNames() {
    return this.width >= 800;
  }

  get plotRight() {
    return this.width - RIGHT_MARGIN - (this.hasNames ? NAMES_WIDTH : 0);
  }

  /** @param {number} seconds */
  x(seconds) {
    const { from, to } = this.view;
    return AXIS_WIDTH + ((seconds - from) / (to - from)) * (this.plotRight - AXIS_WIDTH);
  }

  /** @param {MouseEvent} event */
  instant(event) {
    const { from, to } = this.view;
    const left = event.clientX - this.element.getBoundingClientRect().left;
    const part = (left - AXIS_WIDTH) / (this.plotRight - AXIS_WIDTH);
    return from + Math.min(1, Math.max(0, part)) * (to - from);
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const top = event.clientY - this.element.getBoundingClientRect().top + this.element.scrollTop;
    const row = Math.floor(top / LANE_HEIGHT);
    this.row = row < this.shown.length ? row : null;
    this.tell(this.instant(event));
    this.view.point(this.instant(event));
  }

  leave() {
    this.row = null;
    this.tell();
    this.view.point(null);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: 20, PageUp: -20 }[event.key];
    if (!move) {
      this.view.key(event);
      return;
    }
    event.preventDefault();
    const last = this.shown.length - 1;
    this.row = Math.min(last, Math.max(0, this.row === null ? 0 : this.row + move));
    const top = this.row * LANE_HEIGHT;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    if (top + LANE_HEIGHT > scrollTop + clientHeight) this.element.scrollTop = top + LANE_HEIGHT - clientHeight;
    this.tell(this.view.cursor ?? undefined);
    this.draw();
  }

  /**
   * Names the process that the cursor is on.
   * @param {number} [instant]
   */
  tell(instant) {
    const lane = this.row === null ? undefined : this.shown[this.row];
    if (!lane) {
      const all = counted(this.lanes.length, 'process', 'processes');
      this.status.textContent = this.shown.length === this.lanes.length ? all : `${count(this.shown.length)} of ${all}`;
      return;
    }
    const { process, begin, end, growth } = lane;
    const now = instant === undefined ? '' : `, ${bytes(levelAt(lane, instant))} at ${after(instant, 0.1)}`;
    const peak = `peak ${bytes(process.peak_bytes)}${process.peak_at_ns === null ? '' : ` at ${after(process.peak_at_ns / NS)}`}`;
    this.status.replaceChildren(
      el('strong', {}, named(process.name, 60), ` ${process.pid ?? ''}`),
      `${now}, ${peak}${growth && `, ${growth}`}, ${after(begin)} to ${after(end)}, ${visible(process.ending)}`,
      process.title ? el('span', { class: 'quiet' }, ' ', named(process.title, 160)) : '',
    );
  }

  draw() {
    const { canvas, element, width, height } = this;
    if (width < 80) return;
    const ratio = devicePixelRatio;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = '11px system-ui, sans-serif';
    ctx.textBaseline = 'middle';
    const { scrollTop } = element;
    for (let row = Math.floor(scrollTop / LANE_HEIGHT); row < this.shown.length; row += 1) {
      const top = row * LANE_HEIGHT - scrollTop;
      if (top > height) break;
      this.drawLane(ctx, /** @type {Lane} */ (this.shown[row]), top, row === this.row);
    }
    this.drawCursor(ctx, height);
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {Lane} lane
   * @param {number} top
   * @param {boolean} isChosen
   */
  drawLane(ctx, lane, top, isChosen) {
    const { width } = this;
    if (isChosen) {
      ctx.fillStyle = colours.ground('band');
      ctx.fillRect(0, top, width, LANE_HEIGHT);
    }
    const { process } = lane;
    const middle = top + LANE_HEIGHT / 2 + 1;
    ctx.fillStyle = colours.ground('quiet');
    ctx.textAlign = 'right';
    ctx.fillText(String(process.pid ?? UNKNOWN), AXIS_WIDTH - 8, middle);
    ctx.textAlign = 'left';
    this.drawLevels(ctx, lane, top);
    const left = this.hasNames ? this.plotRight + RIGHT_MARGIN + 16 : AXIS_WIDTH + 4;
    const indent = Math.min(lane.depth, 10) * 9;
    if (process.role !== null) {
      ctx.fillStyle = colours.of(process.role);
      ctx.fillRect(left + indent - 8, top + 4, 5, LANE_HEIGHT - 8);
    }
    ctx.fillStyle = colours.ground('ink');
    const room = this.hasNames ? width - left - indent - 4 : this.plotRight - left - indent;
    const name = fitting(ctx, visible(process.name), room);
    ctx.fillText(name, left + indent, middle);
    const growth = lane.growth && `  ${lane.growth}`;
    if (ctx.measureText(name + growth).width > room) return;
    ctx.fillStyle = colours.ground('quiet');
    ctx.fillText(growth, left + indent + ctx.measureText(name).width, middle);
  }

  /**
   * Of what falls into one column of pixels the highest is drawn.
   * @param {CanvasRenderingContext2D} ctx
   * @param {Lane} lane
   * @param {number} top
   */
  drawLevels(ctx, { levels, end }, top) {
    const right = this.plotRight;
    let drawn = AXIS_WIDTH;
    let most = -1;
    levels.forEach(({ from, bytes: amount }, place) => {
      const x = Math.max(drawn, Math.floor(this.x(from)));
      const next = levels[place + 1]?.from ?? end;
      const until = Math.min(right, Math.max(Math.floor(this.x(next)), place === levels.length - 1 ? x + 1 : 0));
      most = Math.max(most, amount ?? -1);
      if (until <= x || x >= right) return;
      ctx.fillStyle = most < 0 ? colours.ground('grid') : this.colour(most);
      ctx.fillRect(x, top + 2, until - x, LANE_HEIGHT - 4);
      drawn = until;
      most = -1;
    });
  }

  /** @param {number} amount */
  colour(amount) {
    const part = Math.log(Math.max(amount, SMALLEST_RSS) / SMALLEST_RSS) / Math.log(this.most / SMALLEST_RSS);
    return colours.ramp(part);
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {number} height
   */
  drawCursor(ctx, height) {
    for (const [at, colour] of /** @type {const} */ ([[this.view.cursor, 'quiet'], [this.view.pin, 'ink']])) {
      if (at === null || at < this.view.from || at > this.view.to) continue;
      ctx.fillStyle = colours.ground(colour);
      ctx.fillRect(Math.round(this.x(at)), 0, 1, height);
    }
  }
}

/**
 * @param {PageDocument} doc
 * @param {number} last
 * @returns {Lane[]}
 */
function lanesOf(doc, last) {
  /** @type {number[]} */
  const depths = [];
  const told = toldByUpid(doc);
  return doc.processes.map((process, place) => {
    const { parent, begin_ns, end_ns } = process;
    const depth = parent !== null && parent < place ? (depths[parent] ?? -1) + 1 : 0;
    depths.push(depth);
    let at = 0;
    const levels = process.rss.map(([gap, bytes]) => ({ from: (at += gap) / NS, bytes }));
    const begin = begin_ns / NS;
    const end = end_ns === null ? last : Math.max(begin, end_ns / NS);
    const first = levels[0]?.from ?? end;
    if (first > begin) levels.unshift({ from: begin, bytes: null });
    const words = [process.name, process.title, process.role, process.cgroup, process.pid].map((word) => visible(word ?? '')).join(' ').toLowerCase();
    const grown = told.get(process.upid)?.growth;
    const growth = grown?.verdict === 'growing' ? `${change(grown.bytes_per_hour)}/h` : '';
    return { process, depth, begin, end, levels, growth, words };
  });
}

/**
 * @param {Lane} lane
 * @param {number} instant
 * @returns {Maybe}
 */
function levelAt({ levels, begin, end }, instant) {
  if (instant < begin || instant > end) return 0;
  let held = null;
  for (const { from, bytes } of levels) if (from <= instant) held = bytes;
  return held;
}

/** @param {Recorded} all */
function lanesSection(all) {
  const { processes } = all.doc;
  if (processes.length === 0) return null;
  const lanes = new Lanes(all);
  /** @type {HTMLInputElement} */
  const filter = el('input', { type: 'search', placeholder: 'name, title, pid, role', oninput: () => lanes.filter(filter.value) });
  const scale = el('span', { class: 'scale', 'aria-hidden': 'true' }, bytes(SMALLEST_RSS), ...RAMP.map((colour) => el('span', { class: 'swatch', 'style-background': colour })), bytes(lanes.most));
  const made = section('lanes', 'Processes over time', {
    tools: [el('label', {}, 'filter ', filter), scale],
    csv: () => ({
      name: 'lanes',
      columns: ['pid', 'name', 'role', 'offset_s', 'rss_bytes'],
      rows: lanes.shown.flatMap(({ process, levels }) => levels.map(({ from, bytes }) => [process.pid, process.name, process.role, from, bytes])),
    }),
  });
  made.append(lanes.element, lanes.status);
  restyled(() => lanes.draw());
  return made;
}
