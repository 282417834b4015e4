import { api } from '../api/client.ts';
import { dropJob, takeJob } from '../api/jobs_data.ts';
import type { Job, ShortState } from '../api/types.ts';
import { faultOfPriority, isOver } from '../lib/jobs.ts';
import { go } from '../lib/route.ts';
import { ask, attempt, toast } from '../ui/feedback.tsx';

/** What can be asked for in the job's state; imgd decides, and its words are shown where it refuses. */
export function JobActions({ job, state }: { job: Job; state: ShortState }) {
  if (job.external) return null;
  const apply = async (what: Record<string, unknown>) => {
    const answer = (await api.change(job.id, what)) as { job?: Job };
    if (answer.job) takeJob(answer.job);
  };
  const change = (done: string, what: Record<string, unknown>) => attempt(done, () => apply(what));
  const cancel = async () => {
    const answer = await ask({
      title: `Cancel job ${job.id}?`,
      text: `${job.name} ends at once and does not start again. Pause it instead to go on later.`,
      confirm: 'Cancel the job',
      option: { label: 'Save a checkpoint first', value: state === 'RUNNING' },
      danger: true,
    });
    if (answer) await attempt(`Job ${job.id} is being cancelled`, () => api.cancel(job.id, answer.option));
  };
  const priority = async () => {
    const answer = await ask({
      title: 'Priority',
      text: 'Higher goes first, from -1000 to 1000. Where preemption is on, jobs of a lower one make room.',
      confirm: 'Change it',
      input: { label: 'Priority', value: String(job.priority) },
      check: faultOfPriority,
      act: ({ text }) => apply({ priority: Number(text) }),
    });
    if (answer) toast(`Priority of job ${job.id} is ${Number(answer.text)}`);
  };
  const remove = async () => {
    const answer = await ask({
      title: `Delete job ${job.id}?`,
      text: `Its file, history, figures and log are gone for good. Checkpoints stay in ${job.checkpoint_dir || 'their folder'}.`,
      confirm: 'Delete the job',
      danger: true,
    });
    if (answer && (await attempt(`Job ${job.id} is deleted`, () => api.deleteJob(job.id)))) {
      dropJob(job.id);
      go('/jobs');
    }
  };
  const over = isOver(state);
  return (
    <div class="row">
      {(state === 'RUNNING' || state === 'STARTING' || state === 'QUEUED') && (
        <button type="button" onClick={() => change(`Job ${job.id} is being paused`, { pause: {} })}>
          Pause
        </button>
      )}
      {state === 'PAUSED' && (
        <button
          type="button"
          class="primary"
          onClick={() => change(`Job ${job.id} is back in the queue`, { resume: {} })}
        >
          Resume
        </button>
      )}
      {!over && (
        <button type="button" onClick={priority}>
          Priority {job.priority}
        </button>
      )}
      <button type="button" onClick={() => go(`/submit?rerun=${job.id}`)}>
        Rerun
      </button>
      {over ? (
        <button type="button" class="danger" onClick={remove}>
          Delete
        </button>
      ) : (
        <button type="button" class="danger" onClick={cancel}>
          Cancel
        </button>
      )}
    </div>
  );
}
