import type { Job } from '../api/types.ts';
import { toast } from '../ui/feedback.tsx';
import { Imgcli } from '../ui/imgcli.tsx';

/** The job file as it was submitted. */
export function JobConfig({ job }: { job: Job }) {
  const copy = async () => {
    await navigator.clipboard?.writeText(job.job_yaml).catch(() => {});
    toast('The job file is in the clipboard');
  };
  return (
    <section class="panel">
      <header>
        <h2>Job file</h2>
        <span class="grow" />
        <button type="button" class="small" onClick={copy}>
          Copy
        </button>
        <a class="button" href={`/submit?rerun=${job.id}`}>
          Change and rerun
        </a>
      </header>
      <YamlView text={job.job_yaml} />
      <div class="body">
        <Imgcli of={(imgcli) => `${imgcli} rerun ${job.id} --set train.epochs=90`} />
      </div>
    </section>
  );
}

/** A YAML text with numbered lines. */
export function YamlView({ text }: { text: string }) {
  return (
    <section class="yaml" tabIndex={0} aria-label="Job file">
      {text
        .replace(/\n$/, '')
        .split('\n')
        .map((line, i) => (
          <div key={i}>{coloured(line)}</div>
        ))}
    </section>
  );
}

function coloured(line: string) {
  const comment = /(^|\s)#.*$/.exec(line);
  const code = comment ? line.slice(0, comment.index) : line;
  const key = /^(\s*(?:- )?)([\w.-]+)(:)/.exec(code);
  return (
    <>
      {key ? (
        <>
          {key[1]}
          <span class="key">{key[2]}</span>
          {code.slice(key[0].length - 1)}
        </>
      ) : (
        code
      )}
      {comment && <span class="comment">{comment[0]}</span>}
    </>
  );
}
