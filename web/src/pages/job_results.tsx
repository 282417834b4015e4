import { useEffect, useMemo, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import type { ClassFigures, Job, ReportedCheckpoint } from '../api/types.ts';
import { bytes, count, fixed, moment, ms, NONE, num, percent } from '../lib/format.ts';
import { isOver, stateOf } from '../lib/jobs.ts';
import { Clock, Empty, Meter, TableHeader, Trouble } from '../ui/bits.tsx';
import { useData } from '../ui/use_data.ts';
import { Samples } from './job_samples.tsx';

// The trainer reports classes and images one after the other once the pass is over, and the stream tells of neither.
const AGAIN_MS = [3000, 15_000];
const MOST_CHECKPOINTS = 200;
const FIRST_CHECKPOINTS = 8;
/** Of classes, mistakes and images, until all are asked for. */
const FIRST_ROWS = 10;
const MOST_IN_MATRIX = 30;
/** A matrix of so many has room beside something else. */
const SMALL_MATRIX = 12;

/** What a job has made: its checkpoints, and what the newest validation found of each class. */
export function JobResults({ job }: { job: Job }) {
  const seen = `${job.last_epoch?.epoch} ${job.last_checkpoint?.step} ${job.state}`;
  const classes = useData(`classes ${job.id} ${seen}`, (signal) => api.classes(job.id, signal));
  const checkpoints = useData(`checkpoints ${job.id} ${seen}`, (signal) => api.checkpoints(job.id, signal));
  const samples = useData(`samples ${job.id} ${seen}`, (signal) => api.samples(job.id, signal));
  useEffect(() => {
    if (isOver(stateOf(job))) return;
    const again = () => {
      classes.poll();
      samples.poll();
    };
    const timers = AGAIN_MS.map((wait) => setTimeout(again, wait));
    return () => timers.forEach(clearTimeout);
  }, [job.id, seen]);
  const figures = classes.data?.figures;
  const shown = samples.data?.samples;
  const event = samples.data?.event ?? '';
  return (
    <div class="stack">
      {checkpoints.error && !checkpoints.data && (
        <Trouble text={checkpoints.error} retry={checkpoints.reload} />
      )}
      {checkpoints.data && <Checkpoints list={checkpoints.data.checkpoints} id={job.id} />}
      {shown && shown.images.length > 0 && (
        <Samples samples={shown} address={(number) => api.sampleAddress(job.id, event, number)} />
      )}
      {classes.error && !classes.data && <Trouble text={classes.error} retry={classes.reload} />}
      {classes.data && !figures && (
        <div class="panel">
          <Empty
            title="No figures by class"
            text="After a validation pass here is how well each class was told from the others, which were mistaken for which, and the images with the highest loss."
          />
        </div>
      )}
      {figures && (
        <div class="halves">
          <Classes figures={figures} />
          {figures.mistakes.length > 0 && <Mistakes figures={figures} />}
          {figures.confusion.length > 0 && figures.class_count <= MOST_IN_MATRIX && (
            <Confusion figures={figures} />
          )}
          {figures.worst.length > 0 && <Worst figures={figures} />}
        </div>
      )}
    </div>
  );
}

const PRESENCE: Record<ReportedCheckpoint['presence'], [string, string]> = {
  CHECKPOINT_PRESENCE_UNSPECIFIED: ['muted', 'not seen from imgd'],
  CHECKPOINT_PRESENCE_HERE: ['', 'there'],
  CHECKPOINT_PRESENCE_GONE: ['muted', 'removed'],
};

function Checkpoints({ list, id }: { list: readonly ReportedCheckpoint[]; id: string }) {
  const [all, setAll] = useState(false);
  // Those that are there, however old, as the best is, and the newest of the others.
  const isThere = (one: ReportedCheckpoint) => one.presence === 'CHECKPOINT_PRESENCE_HERE';
  let others = (all ? MOST_CHECKPOINTS : FIRST_CHECKPOINTS) - list.filter(isThere).length;
  const shown = list.filter((one) => isThere(one) || others-- > 0);
  if (list.length === 0) {
    return (
      <div class="panel">
        <Empty title="No checkpoints" text="Here is what can be resumed from, exported and downloaded." />
      </div>
    );
  }
  return (
    <section class="panel scroll" tabIndex={0} aria-label="Checkpoints">
      <TableHeader title="Checkpoints" more={list.length > shown.length && !all} showAll={() => setAll(true)}>
        {count(list.length)}; as weights: <code>imgcli export {id} --to torch -o weights.pth</code>
      </TableHeader>
      <table>
        <thead>
          <tr>
            <th scope="col" class="num">
              Step
            </th>
            <th scope="col" class="num">
              Top-1
            </th>
            <th scope="col">Kept as</th>
            <th scope="col">Written</th>
            <th scope="col" class="num">
              Size
            </th>
            <th scope="col" class="num">
              Took
            </th>
            <th scope="col">State</th>
            <th scope="col">Files</th>
            <th scope="col">Folder</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(({ checkpoint, time_us, presence, name, files, unseen, val_top1, kept_as }) => (
            <tr key={checkpoint.path}>
              <td class="num">{count(checkpoint.step)}</td>
              <td class="num">{percent(val_top1, 2)}</td>
              <td class="kept">
                {kept_as.map((why) => (
                  <span key={why} class={`badge ${why === 'best' ? 'run' : ''}`}>
                    {why}
                  </span>
                ))}
              </td>
              <td>
                <Clock at={ms(time_us)} />
              </td>
              <td class="num">{bytes(checkpoint.size_bytes)}</td>
              <td class="num">{checkpoint.write_seconds ? moment(checkpoint.write_seconds) : NONE}</td>
              <td class={PRESENCE[presence][0]}>{PRESENCE[presence][1]}</td>
              <td class="downloads">
                {files.map((file) => (
                  <a
                    key={file.name}
                    href={api.checkpointAddress(id, name, file.name)}
                    title={`Download, ${bytes(file.size_bytes)}`}
                    download=""
                  >
                    {file.name}
                  </a>
                ))}
                {unseen && <span class="muted">{unseen}</span>}
              </td>
              <td class="mono path">{checkpoint.path}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const shareOf = (right: string, images: string) => num(right) / Math.max(num(images), 1);

function Classes({ figures }: { figures: ClassFigures }) {
  const [all, setAll] = useState(false);
  const { classes, class_count } = figures;
  // All that were told, a thousand for ImageNet: drawn once, and not anew with each step.
  const rows = useMemo(
    () =>
      [...classes]
        .sort((a, b) => shareOf(a.top1, a.images) - shareOf(b.top1, b.images))
        .slice(0, all ? classes.length : FIRST_ROWS)
        .map((row) => <ClassRow key={row.label} row={row} />),
    [classes, all],
  );
  return (
    <section class="panel scroll" tabIndex={0} aria-label="Classes">
      <TableHeader title="Classes" more={classes.length > rows.length} showAll={() => setAll(true)}>
        {count(class_count)}, the worst first, at step {count(figures.step)}
        {all && classes.length < class_count && `; the first ${count(classes.length)}`}
      </TableHeader>
      <table>
        <thead>
          <tr>
            <th scope="col">Class</th>
            <th scope="col" class="num">
              Images
            </th>
            <th scope="col">
              <span class="hidden">Top-1 as a bar</span>
            </th>
            <th scope="col" class="num">
              Top-1
            </th>
            <th scope="col" class="num">
              Top-5
            </th>
          </tr>
        </thead>
        <tbody>{rows}</tbody>
      </table>
    </section>
  );
}

function ClassRow({ row }: { row: ClassFigures['classes'][number] }) {
  return (
    <tr>
      <th scope="row">{row.name}</th>
      <td class="num">{count(row.images)}</td>
      <td>
        <Meter share={shareOf(row.top1, row.images)} width={120} />
      </td>
      <td class="num">{percent(shareOf(row.top1, row.images))}</td>
      <td class="num">{percent(shareOf(row.top5, row.images))}</td>
    </tr>
  );
}

function Confusion({ figures }: { figures: ClassFigures }) {
  const n = figures.class_count;
  const names = new Map(figures.classes.map((one) => [one.label, one.name]));
  const name = (label: number) => names.get(label) ?? String(label);
  const labels = Array.from({ length: n }, (_, i) => i);
  const row = (label: number) => figures.confusion.slice(label * n, (label + 1) * n);
  return (
    <section
      class={`panel scroll ${n > SMALL_MATRIX ? 'wide' : ''}`}
      tabIndex={0}
      aria-label="What was taken for what"
    >
      <header>
        <h2>What was taken for what</h2>
        <span class="muted">a row for each class, a column for each answer</span>
      </header>
      <table class="matrix">
        <thead>
          <tr>
            <th scope="col">Class</th>
            {labels.map((label) => (
              <th scope="col" class="num" key={label}>
                {name(label)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {labels.map((label) => {
            const all = row(label).reduce((a, b) => a + b, 0) || 1;
            return (
              <tr key={label}>
                <th scope="row">{name(label)}</th>
                {row(label).map((images, answer) => (
                  <td
                    key={answer}
                    class={`num ${answer === label ? 'right' : ''}`}
                    style={{ '--part': `${Math.round((images / all) * 60)}%` }}
                  >
                    {images || <span class="muted">0</span>}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}

function Mistakes({ figures }: { figures: ClassFigures }) {
  const [all, setAll] = useState(false);
  const rows = figures.mistakes.slice(0, 20);
  const shown = all ? rows : rows.slice(0, FIRST_ROWS);
  return (
    <section class="panel scroll" tabIndex={0} aria-label="Most frequent mistakes">
      <TableHeader
        title="Most frequent mistakes"
        more={rows.length > shown.length}
        showAll={() => setAll(true)}
      >
        {null}
      </TableHeader>
      <table>
        <thead>
          <tr>
            <th scope="col">Class</th>
            <th scope="col">Taken for</th>
            <th scope="col" class="num">
              Images
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <tr key={`${one.name} ${one.answer}`}>
              <th scope="row">{one.name}</th>
              <td>{one.answer}</td>
              <td class="num">{count(one.images)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Worst({ figures }: { figures: ClassFigures }) {
  const [all, setAll] = useState(false);
  const shown = all ? figures.worst : figures.worst.slice(0, FIRST_ROWS);
  return (
    <section class="panel scroll" tabIndex={0} aria-label="Images with the highest loss">
      <TableHeader
        title="Images with the highest loss"
        more={figures.worst.length > shown.length}
        showAll={() => setAll(true)}
      >
        {null}
      </TableHeader>
      <table>
        <thead>
          <tr>
            <th scope="col">Image</th>
            <th scope="col">Class</th>
            <th scope="col">Taken for</th>
            <th scope="col" class="num">
              Sure to
            </th>
            <th scope="col" class="num">
              Loss
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <tr key={one.name}>
              <th scope="row" class="mono">
                {one.name}
              </th>
              <td>{one.class_name}</td>
              <td>{one.answer}</td>
              <td class="num">{percent(one.probability, 0)}</td>
              <td class="num">{fixed(one.loss, 2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
