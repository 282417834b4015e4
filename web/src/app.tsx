import { useEffect } from 'preact/hooks';
import { current, matchPath } from './lib/route.ts';
import { useStore } from './lib/store.ts';
import { ComparePage } from './pages/compare.tsx';
import { DatasetPage } from './pages/dataset.tsx';
import { DatasetsPage } from './pages/datasets.tsx';
import { JobPage } from './pages/job.tsx';
import { JobsPage } from './pages/jobs.tsx';
import { NodesPage } from './pages/nodes.tsx';
import { QueuePage } from './pages/queue.tsx';
import { SubmitPage } from './pages/submit.tsx';
import { UsagePage } from './pages/usage_page.tsx';
import { Empty } from './ui/bits.tsx';
import { Shell } from './ui/shell.tsx';

type Parameters = Record<string, string>;

const ROUTES: readonly [string, string, (parameters: Parameters) => preact.JSX.Element][] = [
  ['/', 'Jobs', () => <JobsPage />],
  ['/jobs', 'Jobs', () => <JobsPage />],
  ['/jobs/:id', 'Job', ({ id }) => <JobPage key={id} id={id!} tab="" />],
  ['/jobs/:id/:tab', 'Job', ({ id, tab }) => <JobPage key={id} id={id!} tab={tab!} />],
  ['/submit', 'Submit', () => <SubmitPage />],
  ['/compare', 'Compare', () => <ComparePage />],
  ['/nodes', 'Nodes', () => <NodesPage />],
  ['/nodes/:name', 'Nodes', ({ name }) => <NodesPage name={name!} />],
  ['/queue', 'Queue', () => <QueuePage />],
  ['/datasets', 'Data sets', () => <DatasetsPage />],
  ['/datasets/:name', 'Data set', ({ name }) => <DatasetPage key={name} name={name!} />],
  ['/usage', 'Usage', () => <UsagePage />],
];

export function App() {
  const { path } = useStore(current);
  for (const [pattern, title, page] of ROUTES) {
    const found = matchPath(pattern, path);
    if (found) {
      return (
        <Shell>
          <Title text={found.id ? `Job ${found.id}` : title} />
          {page(found)}
        </Shell>
      );
    }
  }
  return (
    <Shell>
      <Empty page title="There is no such page" text={path}>
        <a class="button" href="/">
          Jobs
        </a>
      </Empty>
    </Shell>
  );
}

function Title({ text }: { text: string }) {
  useEffect(() => {
    document.title = `${text} · imgd`;
  }, [text]);
  return null;
}
