import { useMemo } from 'preact/hooks';
import { flatYaml } from '../lib/flat_yaml.ts';
import { setYaml } from '../lib/yaml_set.ts';

/** Setting, label, and what it is if the file does not say. */
const FIELDS = [
  ['name', 'Name', ''],
  ['model.name', 'Model', 'resnet50'],
  ['data.train', 'Training images', ''],
  ['data.val', 'Validation images', 'none'],
  ['train.epochs', 'Epochs', '90'],
  ['train.global_batch', 'Images a step', '256'],
  ['optimizer.lr', 'Learning rate', '0.1'],
  ['resources.nodes', 'Nodes', '1'],
  ['resources.ranks_per_node', 'Ranks a node', '1'],
  ['priority', 'Priority', '0'],
  ['time_limit', 'Time limit', 'none'],
  ['project', 'Project', 'none'],
] as const;

/** The usual settings as fields: they show what the file says, and write into it. */
export function SubmitForm({ text, onChange }: { text: string; onChange: (text: string) => void }) {
  const values = useMemo(() => flatYaml(text), [text]);
  if (values.has('command') || [...values.keys()].some((name) => /^(command|convert)\./.test(name)))
    return null;
  return (
    <section class="panel" aria-label="Usual settings">
      <header>
        <h2>Usual settings</h2>
        <span class="muted">what is typed here goes into the file</span>
      </header>
      <form class="body fields" onSubmit={(event) => event.preventDefault()}>
        {FIELDS.map(([name, label, usual]) => {
          const known = values.get(name) ?? '';
          // In a form that only a person can change.
          const fixed = setYaml(text, name, known || 'x') === null;
          return (
            <label key={name}>
              <span>{label}</span>
              <input
                type="text"
                value={fixed ? '' : known}
                disabled={fixed}
                placeholder={fixed ? 'see the file' : usual}
                title={name}
                onInput={(event) => {
                  const next = setYaml(text, name, event.currentTarget.value.trim());
                  if (next !== null) onChange(next);
                }}
              />
            </label>
          );
        })}
      </form>
    </section>
  );
}
