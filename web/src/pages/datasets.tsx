import { useEffect, useState } from 'preact/hooks';
import { api } from '../api/client.ts';
import { datasetsState, followDatasets, loadDatasets } from '../api/datasets_data.ts';
import type { Dataset } from '../api/types.ts';
import { count, ms, num } from '../lib/format.ts';
import { useStore } from '../lib/store.ts';
import { Command, Empty, Trouble, When } from '../ui/bits.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { ask, attempt, Refusal, type Refused, refusedBy, toast } from '../ui/feedback.tsx';
import { Imgcli } from '../ui/imgcli.tsx';
import { Condition, ConversionCell } from './dataset_state.tsx';

// Only what registers it asks imgd.
const example = (
  imgcli: string,
) => `imgcli dataset synth --classes 10 --per-class 200 --size 96x96 /shared/shapes
${imgcli} dataset register shapes /shared/shapes`;

/** Names that jobs call data sets by. */
export function DatasetsPage() {
  useEffect(followDatasets, []);
  const { datasets, ready, error } = useStore(datasetsState);
  const [open, setOpen] = useState(false);
  return (
    <>
      <div class="title">
        <h1 tabIndex={-1}>Data sets</h1>
        {ready && <span class="sub">{count(datasets.length)}</span>}
        <span class="grow" />
        <button type="button" onClick={() => setOpen(true)}>
          Register …
        </button>
      </div>
      {!ready && error && <Trouble text={error} retry={loadDatasets} />}
      {ready && (
        <div class="stack">
          <section class="panel" aria-label="Registered data sets">
            {datasets.length === 0 ? (
              <Empty
                title="No data set has a name"
                text="A name stands for the address of a set, so that job files say dataset:NAME/train and need no paths. Draw a small one in a folder that all nodes see, such as /shared, and register it:"
              >
                <Imgcli of={example} />
              </Empty>
            ) : (
              <List datasets={datasets} />
            )}
          </section>
          {datasets.length > 0 && (
            <div class="row muted">
              In a job file:{' '}
              <Command
                text={`data: {train: dataset:${datasets[0]!.name}/train, val: dataset:${datasets[0]!.name}/val}`}
              />
            </div>
          )}
        </div>
      )}
      {open && <Register close={() => setOpen(false)} />}
    </>
  );
}

function List({ datasets }: { datasets: readonly Dataset[] }) {
  const remove = async (name: string) => {
    const answer = await ask({
      title: `Take the name ${name} away?`,
      text: 'Its images stay where they are, and jobs that were submitted with it go on. New job files can’t use the name.',
      confirm: 'Take it away',
      danger: true,
    });
    if (answer && (await attempt(`${name} is no name any more`, () => api.removeDataset(name))))
      await loadDatasets();
  };
  return (
    <div class="scroll" tabIndex={0}>
      <table>
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Where it is</th>
            <th scope="col" class="num">
              Images
            </th>
            <th scope="col" class="num">
              Classes
            </th>
            <th scope="col">Owner</th>
            <th scope="col">Registered</th>
            <th scope="col">State</th>
            <th scope="col">
              <span class="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {datasets.map((set) => (
            <tr key={set.name}>
              <th scope="row">
                <a href={`/datasets/${set.name}`}>{set.name}</a>
              </th>
              <td class="mono">{set.address}</td>
              <td class="num">{num(set.images) > 0 ? count(set.images) : '–'}</td>
              <td class="num">{set.classes > 0 ? count(set.classes) : '–'}</td>
              <td>{set.owner}</td>
              <td>
                <When at={ms(set.registered_us)} />
              </td>
              <td>
                {num(set.made_by) > 0 ? (
                  <>
                    made by{' '}
                    <a class="in-text" href={`/jobs/${set.made_by}`}>
                      job {set.made_by}
                    </a>{' '}
                  </>
                ) : (
                  <Condition set={set} />
                )}
                {set.progress && <ConversionCell progress={set.progress} />}
              </td>
              <td class="num">
                <button
                  type="button"
                  class="small"
                  aria-label={`Forget … ${set.name}`}
                  onClick={() => remove(set.name)}
                >
                  Forget …
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Register({ close }: { close: () => void }) {
  const [wrong, setWrong] = useState<Refused | null>(null);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const name = String(form.get('name'));
    setWrong(null);
    try {
      await api.registerDataset(name, String(form.get('address')));
    } catch (error) {
      return setWrong(refusedBy(error));
    }
    toast(`dataset:${name} is registered`);
    close();
    return loadDatasets();
  };
  return (
    <Dialog title="Register a data set" onClose={close}>
      <form onSubmit={submit}>
        <h2>Register a data set</h2>
        <label class="field">
          Name: a-z, 0-9, ".", "_", "-"
          <input type="text" name="name" required pattern="[a-z0-9][a-z0-9._\-]*" autocomplete="off" />
        </label>
        <label class="field">
          Where it is: a shared folder, a pattern of shards, or a URL
          <input type="text" name="address" required placeholder="/shared/imagenet" autocomplete="off" />
        </label>
        <p class="muted">imgcli dataset register counts its images and classes too.</p>
        {wrong && <Refusal of={wrong} />}
        <div class="actions">
          <button type="button" onClick={close}>
            Back
          </button>
          <button type="submit" class="primary">
            Register
          </button>
        </div>
      </form>
    </Dialog>
  );
}
