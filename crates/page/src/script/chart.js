// One chart over time: layers that add up and lines beside them. uPlot keeps axes, cursor and the
// drag that zooms; the step functions are drawn here, by columns of pixels.

/**
 * @typedef {object} Line
 * @property {Steps} series
 * @property {string} colour
 * @property {number} width In CSS pixels.
 * @property {number[]} [dash]
 * @property {boolean} [isLimit] It does not stretch the scale by much.
 * @property {boolean} [hasHalo] It crosses layers, and stands out from their colours.
 * @property {boolean} [isEdge] It is drawn without flanks: the upper edge of the layers, or a limit.
 */

/**
 * What a line lies within.
 * @typedef {{ low: Steps, high: Steps }} Bounds
 */

/**
 * What a chart shows: the layers from the bottom up, all on the same instants.
 * @typedef {object} Shown
 * @property {Steps[]} layers
 * @property {string[]} layerColours
 * @property {Line[]} lines
 * @property {Bounds | null} [band]
 */

const AXIS_WIDTH = 72;
const RIGHT_MARGIN = 36;
// Of a chart that is one of many beside each other.
const NARROW = { axis: 62, margin: 10, space: 80 };
const TIME_STEPS = [
  ...[1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1].flatMap((unit) => [unit, 2 * unit, 5 * unit]),
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200],
  ...[1, 2, 5, 10, 20, 50, 100, 1000, 10000, 100000].map((days) => days * 86400),
];

class Chart {
  /**
   * @param {View} view
   * @param {{ label: string, height: number, top?: number, isNarrow?: boolean, overlay?: (chart: Chart) => void }} given
   */
  constructor(view, { label, height, top = 10, isNarrow = false, overlay }) {
    this.view = view;
    this.sizes = isNarrow ? NARROW : { axis: AXIS_WIDTH, margin: RIGHT_MARGIN, space: 90 };
    /** @type {() => number | null} The top of the scale, where several charts have one. */
    this.shared = () => null;
    this.height = height;
    this.overlay = overlay;
    /** @type {Shown} */
    this.shown = { layers: [], layerColours: [], lines: [] };
    /** @type {Float64Array[]} */
    this.sums = [];
    this.scaled = { from: NaN, to: NaN, shown: this.shown, top: 0 };
    this.element = el('div', {
      class: 'chart',
      tabindex: 0,
      role: 'application',
      'aria-roledescription': 'chart',
      'aria-label': `${label}. Arrow keys move the cursor, Enter pins it, Escape unpins, plus and minus zoom, 0 shows all.`,
      onkeydown: (event) => view.key(event),
    });
    this.element.style.height = `${height}px`;
    /** @type {uPlot | null} */
    this.plot = null;
    this.top = top;
    // Where 0 is in the canvas, and how high a byte.
    this.base = 0;
    this.perByte = 0;
    new ResizeObserver(() => this.resize()).observe(this.element);
    view.watch({
      zoomed: () => {
        this.redraw();
        this.follow();
      },
      pointed: () => this.follow(),
      pinned: () => this.redraw(),
    });
  }

  /** @param {Shown} shown */
  show(shown) {
    this.shown = shown;
    this.sums = stacked(shown.layers);
    this.redraw();
  }

  redraw() {
    const { from, to } = this.view;
    this.plot?.setScale('x', { min: from, max: to });
  }

  resize() {
    const width = this.element.clientWidth;
    if (width < 80) return;
    if (this.plot) this.plot.setSize({ width, height: this.height });
    else this.make(width);
  }

  /** @param {number} width */
  make(width) {
    const { view } = this;
    /** @type {uPlot.Axis} */
    const axis = {
      stroke: () => colours.ground('quiet'),
      grid: { stroke: () => colours.ground('grid'), width: 1 },
      ticks: { stroke: () => colours.ground('grid'), width: 1, size: 4 },
      font: '11px system-ui, sans-serif',
    };
    this.plot = new uPlot(
      {
        width,
        height: this.height,
        padding: [this.top, this.sizes.margin, 0, 0],
        legend: { show: false },
        scales: {
          x: { time: false, min: view.from, max: view.to, range: (_, low, high) => [low, high] },
          y: { range: () => [0, this.ceiling()] },
        },
        series: [{}, { show: true, paths: () => null, points: { show: false } }],
        axes: [
          {
            ...axis,
            size: 30,
            gap: 4,
            space: this.sizes.space,
            incrs: TIME_STEPS,
            values: (_, splits, _axis, _space, step) => splits.map((at) => after(at, step)),
          },
          {
            ...axis,
            size: this.sizes.axis,
            splits: (_, _axis, _low, high) => byteTicks(high, this.height - this.top - 30),
            values: (_, splits) => splits.map(tickLabel),
          },
        ],
        cursor: {
          x: true,
          y: false,
          points: { show: false },
          drag: { x: true, y: false, setScale: false },
          bind: {
            dblclick: () => () => {
              view.reset();
              return null;
            },
          },
        },
        hooks: {
          draw: [() => this.draw()],
          setSelect: [
            (plot) => {
              const { left, width: length } = plot.select;
              if (length < 3) return;
              plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
              view.zoom(plot.posToVal(left, 'x'), plot.posToVal(left + length, 'x'));
            },
          ],
        },
      },
      [
        [view.begin, view.end],
        [0, 0],
      ],
      this.element,
    );
    this.listen(this.plot);
  }

  /**
   * The mouse moves the cursor of all pictures; a click that is no drag pins the instant.
   * @param {uPlot} plot
   */
  listen({ over, posToVal }) {
    const instant = (/** @type {MouseEvent} */ event) =>
      posToVal(event.clientX - over.getBoundingClientRect().left, 'x');
    let pressed = 0;
    over.addEventListener('mousemove', (event) => this.view.point(instant(event)));
    over.addEventListener('mouseleave', () => this.view.point(null));
    over.addEventListener('mousedown', (event) => (pressed = event.clientX));
    over.addEventListener('click', (event) => {
      if (Math.abs(event.clientX - pressed) > 3) return;
      this.element.focus({ preventScroll: true });
      this.view.click(instant(event), event.detail);
    });
  }

  follow() {
    const { plot, view } = this;
    if (!plot) return;
    const left = view.cursor === null ? -10 : plot.valToPos(view.cursor, 'x');
    plot.setCursor({ left, top: left < 0 ? -10 : 1 });
  }

  /** The highest value of the scale, found once for each stretch that is shown. */
  ceiling() {
    const { from, to } = this.view;
    const { top } = this.scaled;
    if (this.scaled.from !== from || this.scaled.to !== to || this.scaled.shown !== this.shown) {
      this.scaled = { from, to, shown: this.shown, top: this.shared() ?? this.highestShown(from, to) };
      return this.scaled.top;
    }
    return top;
  }

  /**
   * What is in view, and a limit that is not far above it.
   * @param {number} from
   * @param {number} to
   */
  highestShown(from, to) {
    const { layers, lines, band } = this.shown;
    let most = 0;
    const see = (/** @type {Float64Array} */ seconds, /** @type {Float64Array} */ values) => {
      most = Math.max(most, highest(seconds, values, from, to));
    };
    const top = this.sums[this.sums.length - 1];
    if (top && layers[0]) see(layers[0].seconds, top);
    for (const { series, isLimit } of lines) if (!isLimit) see(series.seconds, series.values);
    const held = most;
    const above = lines.filter(({ isLimit }) => isLimit).map(({ series }) => series);
    for (const series of band ? [...above, band.high] : above) {
      const limit = highest(series.seconds, series.values, from, to);
      if (held === 0 || limit <= held * 1.6) most = Math.max(most, limit);
    }
    return most > 0 ? most * 1.06 : 1 << 20;
  }

  draw() {
    const plot = this.plot;
    if (!plot) return;
    const { ctx, bbox } = plot;
    const width = Math.max(1, Math.round(bbox.width));
    this.base = bbox.top + bbox.height;
    this.perByte = bbox.height / this.ceiling();
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    this.drawLayers(ctx, width);
    if (this.shown.band) this.drawBand(ctx, width, this.shown.band);
    for (const line of this.shown.lines) this.drawLine(ctx, width, line);
    ctx.restore();
    this.overlay?.(this);
    this.drawPin(ctx);
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {number} width
   */
  drawLayers(ctx, width) {
    const { layers, layerColours } = this.shown;
    const first = layers[0];
    if (!first) return;
    const { from, to } = this.view;
    const starts = columnStarts(first.seconds, from, to, width);
    const bottom = this.y(0);
    const left = this.left();
    const edge = colours.ground('ground');
    // From the whole down: each layer covers all but its own part of the one before.
    for (let place = this.sums.length - 1; place >= 0; place -= 1) {
      const { high } = columns(/** @type {Float64Array} */ (this.sums[place]), starts);
      const path = new Path2D();
      let level = this.y(/** @type {number} */ (high[0]));
      path.moveTo(left, bottom);
      path.lineTo(left, level);
      for (let column = 1; column < width; column += 1) {
        if (high[column] === high[column - 1]) continue;
        path.lineTo(left + column, level);
        level = this.y(/** @type {number} */ (high[column]));
        path.lineTo(left + column, level);
      }
      path.lineTo(left + width, level);
      path.lineTo(left + width, bottom);
      ctx.fillStyle = /** @type {string} */ (layerColours[place]);
      ctx.fill(path);
      if (place === this.sums.length - 1) continue;
      ctx.strokeStyle = edge;
      ctx.lineWidth = 0.6 * devicePixelRatio;
      ctx.stroke(path);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {number} width
   * @param {Bounds} band
   */
  drawBand(ctx, width, { low, high }) {
    const { from, to } = this.view;
    const starts = columnStarts(low.seconds, from, to, width);
    const [lowest, highest] = [columns(low.values, starts).low, columns(high.values, starts).high];
    const left = this.left();
    ctx.save();
    ctx.fillStyle = colours.ground('ink');
    ctx.globalAlpha = 0.22;
    for (let column = 0; column < width; column += 1) {
      const top = this.y(/** @type {number} */ (highest[column]));
      const height = this.y(/** @type {number} */ (lowest[column])) - top;
      if (height > 0) ctx.fillRect(left + column, top, 1, height);
    }
    ctx.restore();
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {number} width
   * @param {Line} line
   */
  drawLine(ctx, width, line) {
    const { from, to } = this.view;
    const { seconds, values, before } = line.series;
    const drawn = columns(values, columnStarts(seconds, from, to, width), before);
    const path = line.isEdge ? this.edge(drawn, width) : this.trace(drawn, width);
    ctx.save();
    ctx.lineJoin = 'round';
    if (line.hasHalo) {
      ctx.strokeStyle = colours.ground('halo');
      ctx.lineWidth = (line.width + 2) * devicePixelRatio;
      ctx.stroke(path);
    }
    ctx.strokeStyle = line.colour;
    ctx.lineWidth = line.width * devicePixelRatio;
    ctx.setLineDash((line.dash ?? []).map((part) => part * devicePixelRatio));
    ctx.stroke(path);
    ctx.restore();
  }

  /**
   * The upper edge of a stack, without the flanks of spikes: they would cover the colours of those
   * who made them. What falls and comes back within a column is a stroke down.
   * @param {Columns} drawn
   * @param {number} width
   */
  edge(drawn, width) {
    const left = this.left();
    const path = new Path2D();
    let begin = 0;
    for (let column = 0; column < width; column += 1) {
      const high = /** @type {number} */ (drawn.high[column]);
      const low = /** @type {number} */ (drawn.low[column]);
      if (drawn.high[column + 1] !== high) {
        if (!Number.isNaN(high)) {
          path.moveTo(left + begin, this.y(high));
          path.lineTo(left + column + 1, this.y(high));
        }
        begin = column + 1;
      }
      const edges = Math.min(/** @type {number} */ (drawn.first[column]), /** @type {number} */ (drawn.last[column]));
      if (low < edges) {
        path.moveTo(left + column + 0.5, this.y(edges));
        path.lineTo(left + column + 0.5, this.y(low));
      }
    }
    return path;
  }

  /**
   * A line through all values, down to the lowest and up to the highest of each column.
   * @param {Columns} drawn
   * @param {number} width
   */
  trace(drawn, width) {
    const left = this.left();
    const path = new Path2D();
    let isOpen = false;
    let level = NaN;
    for (let column = 0; column < width; column += 1) {
      const first = /** @type {number} */ (drawn.first[column]);
      const last = /** @type {number} */ (drawn.last[column]);
      const low = /** @type {number} */ (drawn.low[column]);
      const high = /** @type {number} */ (drawn.high[column]);
      const x = left + column + 0.5;
      if (Number.isNaN(high)) {
        if (isOpen) path.lineTo(x, level);
        isOpen = false;
        continue;
      }
      if (low === high && isOpen && this.y(high) === level && column + 1 < width) continue;
      if (isOpen) path.lineTo(x, level);
      else path.moveTo(x, this.y(Number.isNaN(first) ? low : first));
      if (low !== high) {
        path.lineTo(x, this.y(high));
        path.lineTo(x, this.y(low));
      }
      level = this.y(Number.isNaN(last) ? low : last);
      path.lineTo(x, level);
      isOpen = !Number.isNaN(last);
    }
    return path;
  }

  /** @param {CanvasRenderingContext2D} ctx */
  drawPin(ctx) {
    const { pin, from, to } = this.view;
    if (pin === null || pin < from || pin > to || !this.plot) return;
    const { top, height } = this.plot.bbox;
    const x = Math.round(this.x(pin)) + 0.5;
    ctx.save();
    ctx.strokeStyle = colours.ground('ink');
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, top);
    ctx.lineTo(x, top + height);
    ctx.stroke();
    ctx.fillStyle = colours.ground('ink');
    ctx.beginPath();
    ctx.arc(x, top + height, 4 * devicePixelRatio, 0, 7);
    ctx.fill();
    ctx.restore();
  }

  left() {
    return Math.round(this.plot?.bbox.left ?? 0);
  }

  /**
   * Where an instant is, in the canvas's pixels.
   * @param {number} seconds
   */
  x(seconds) {
    return this.plot?.valToPos(seconds, 'x', true) ?? 0;
  }

  /**
   * Where an amount is, in the canvas's pixels.
   * @param {number} amount
   */
  y(amount) {
    return this.base - amount * this.perByte;
  }
}

/**
 * Powers of two and what lies as far apart (256 MiB, 512 MiB, 768 MiB, 1 GiB), as many as have room.
 * @param {number} most
 * @param {number} height
 */
function byteTicks(most, height) {
  const wanted = Math.max(2, Math.floor(height / 36));
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(1, most) / wanted)));
  const ticks = [];
  for (let amount = 0; amount <= most; amount += step) ticks.push(amount);
  return ticks;
}

/**
 * The amount of a tick: quarters of a GiB have more decimals than the amounts of the page.
 * @param {number} amount
 */
function tickLabel(amount) {
  const rounded = bytes(amount);
  const [number, unit] = rounded.split(' ');
  if (Number(number) === 0) return rounded;
  const value = amount / 1024 ** Math.round(Math.log2(amount / Number(number)) / 10);
  return value === Number(number) ? rounded : `${value} ${unit}`;
}
