// GPUs, one chart a device, under the same cursor and zoom as the host.

/** @param {Recorded} all */
function gpuSection(all) {
  const { curves, doc, view } = all;
  if (curves.gpus.length === 0) return null;
  const devices = curves.gpus.map((gpu) => {
    const seconds = instants(gpu.time_ns);
    return { ...gpu, seconds, used: steps(gpu.used, seconds, NaN), series: gpu.series.map((one) => steps(one, seconds, NaN)) };
  });
  const made = section('gpus', 'GPU memory over time', {
    csv: () => ({ name: 'gpus', columns: ['device', 'offset_s', 'series', 'bytes'], rows: gpuRows(devices) }),
  });
  for (const device of devices) made.append(gpuPicture(all, device));
  return made;

  /**
   * @param {Recorded} all
   * @param {{ id: string, label: string, total_bytes: Maybe, seconds: Float64Array, used: Steps, series: Steps[] }} device
   */
  function gpuPicture(all, { id, label, total_bytes, used, series }) {
    const chart = new Chart(view, { label: `memory of ${visible(label)}`, height: 170 });
    const update = () => {
      const colourOf = seriesColours(doc, 'process', series);
      const layers = series.map((one) => ({ series: one, colour: colourOf.get(one) ?? '' }));
      const shown = layers.filter(({ series: { id } }) => !readout.hidden.has(id));
      /** @type {Line[]} */
      const lines = [{ series: used, colour: colours.ground('ink'), width: 1.5, isEdge: readout.hidden.size === 0 }];
      if (total_bytes !== null) {
        const total = { ...used, id: 'total', name: 'memory of the device', seconds: Float64Array.of(view.begin), values: Float64Array.of(total_bytes), before: total_bytes };
        lines.push({ series: total, colour: colours.ground('alert'), width: 1.5, dash: [7, 4], isEdge: true });
      }
      chart.show({
        layers: shown.map(({ series: one }) => one),
        layerColours: shown.map(({ colour }) => colour),
        lines,
      });
      readout.show(layers, lines);
    };
    const readout = new Readout(view, all.clock, { resting: () => peakOf(all), toggled: update });
    restyled(update);
    update();
    return el(
      'div',
      { class: 'device', 'data-device': visible(id) },
      el('h3', {}, named(label, 60)),
      el('div', { class: 'picture' }, chart.element, readout.element),
    );
  }
}

/** @param {{ label: string, seconds: Float64Array, used: Steps, series: Steps[] }[]} devices */
function* gpuRows(devices) {
  for (const { label, seconds, used, series } of devices) {
    for (const { name, values } of [used, ...series]) {
      for (let place = 0; place < seconds.length; place += 1) {
        const value = values[place];
        yield [label, seconds[place], name, Number.isNaN(value) ? null : value];
      }
    }
  }
}
