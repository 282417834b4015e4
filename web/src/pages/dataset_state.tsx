import type { Dataset, DatasetProgress } from '../api/types.ts';
import { conditionOf, progressText, shareOf } from '../lib/datasets.ts';
import { ms } from '../lib/format.ts';
import { Meter, When } from '../ui/bits.tsx';

/** Whether a set is there and whole, in words and colour. */
export function Condition({ set }: { set: Dataset }) {
  const { tone, text } = conditionOf(set);
  return <span class={tone === 'off' ? 'muted' : `tone-${tone}`}>{text}</span>;
}

const share = (progress: DatasetProgress) => `${Math.floor(shareOf(progress) * 100)} %`;

/** How far a conversion is, in a line of a table. */
export function ConversionCell({ progress }: { progress: DatasetProgress }) {
  return (
    <span class="progress-cell" title={progressText(progress)}>
      <Meter share={shareOf(progress)} width={80} tone="tone-run" />
      <span>{share(progress)}</span>
    </span>
  );
}

/** The same with all that is known of it. */
export function Conversion({ progress }: { progress: DatasetProgress }) {
  return (
    <section class="panel" aria-label="Conversion">
      <header>
        <h2>Conversion</h2>
        <span class="muted">
          <a class="in-text" href={`/jobs/${progress.job_id}`}>
            job {progress.job_id}
          </a>
          , told <When at={ms(progress.time_us)} />
        </span>
      </header>
      <div class="body conversion">
        <progress value={shareOf(progress)} max={1} aria-label="How far the conversion is" />
        <span>
          {share(progress)} · {progressText(progress)}
        </span>
      </div>
    </section>
  );
}
