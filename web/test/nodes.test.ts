// What the page of nodes says of devices that no job holds, and of figures that could not be read.
import assert from 'node:assert/strict';
import type { Device, Node } from '../src/api/types.ts';
import { axe, browserTest, comeBack } from './harness.ts';

/** A free device of a node that takes jobs. */
function freeDevice(nodes: Iterable<Node>): { node: Node; device: Device } {
  for (const node of nodes) {
    if (node.state !== 'NODE_STATE_READY' || node.reason_text) continue;
    const device = node.devices.find((one) => one.job_id === '0');
    if (device) return { node, device };
  }
  throw new Error('no device is free');
}

for (const dark of [false, true]) {
  browserTest(`what no job can have is not free, and what is busy without one is seen, ${dark ? 'dark' : 'light'}`, async ({ page, server, base }) => {
    const nodes = [...server.world.nodes.values()];
    const { node, device } = freeDevice(nodes);
    device.reading!.busy_ratio = 0.95;
    const reads = nodes.filter((one) => one.state === 'NODE_STATE_READY' && !one.reason_text);
    const free = reads.flatMap((one) => one.devices).filter((one) => one.job_id === '0').length;
    await page.goto(`${base}/nodes`);
    await page.locator('dl.facts div', { hasText: 'Free' }).getByText(`${free} devices`).waitFor();
    const cells = (name: string) =>
      page.locator('.node-row').filter({ has: page.getByRole('link', { name, exact: true }) }).locator('.gpu');
    const rows: [string, RegExp][] = [['gpu-5', /^drained/], ['l4-3', /^lost/], ['gpu-8', /^(sick|fault)/]];
    for (const [name, said] of rows) {
      await cells(name).first().waitFor();
      for (const text of await cells(name).allTextContents()) assert.match(text, said);
    }
    const stray = cells(node.name).nth(device.index);
    assert.match((await stray.textContent())!, /^free 95\u00a0%/);
    assert.match((await stray.getAttribute('style'))!, /--busy: 9\d%/);
    assert.equal(await axe(page), '');
  }, { everyMs: 0, dark });
} // biome-ignore format: one argument

browserTest('how busy a node was in the last hour is seen as soon as the page is', async ({ page, base }) => {
  await page.goto(`${base}/nodes`);
  const curve = page.getByRole('img', { name: 'How busy gpu-1 was in the last hour' });
  assert.equal((await curve.locator('path').getAttribute('d'))!.split(/[ML]/).length - 1, 60);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a minute alone between two of which nothing is known is a dot', async ({ page, server, base }) => {
  server.world.nodes.get('gpu-1')!.recent_busy_ratios = [0.5, 'NaN', 0.5, 'NaN', 0.4, 0.5];
  await page.goto(`${base}/nodes`);
  const curve = page.getByRole('img', { name: 'How busy gpu-1 was in the last hour' });
  assert.match((await curve.locator('path').getAttribute('d'))!, /^M\S+ \S+h0M\S+ \S+h0M[^h]+L[^h]+$/);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('how busy a GPU is that could not be read is not said to be 0', async ({ page, server, base }) => {
  const { node, device } = freeDevice(server.world.nodes.values());
  device.reading!.error = "utilisation can't be read: Not Supported";
  device.reading!.power_watts = 310;
  await page.goto(`${base}/nodes/${node.name}`);
  const row = page.locator(`section[aria-label="${node.name}"] section[aria-label=Devices] tbody tr`).nth(device.index);
  await row.getByText("utilisation can't be read").waitFor();
  const texts = await row.locator('td').allTextContents();
  assert.deepEqual([texts[4], texts[6]], ['–', '310 W']);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('one device that is free is one device', async ({ page, server, base }) => {
  const { device } = freeDevice(server.world.nodes.values());
  const others = [...server.world.nodes.values()].flatMap((node) => node.devices).filter((one) => one !== device);
  for (const one of others) if (one.job_id === '0') one.job_id = '91';
  await page.goto(`${base}/nodes`);
  await page.locator('dl.facts div', { hasText: 'Free' }).getByText('1 device', { exact: true }).waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a GPU that could not be read does not make its job look idle', async ({ page, server, base }) => {
  for (const device of server.world.nodes.get('gpu-1')!.devices) device.reading!.busy_ratio = 0.9;
  const reading = server.world.nodes.get('gpu-1')!.devices[0]!.reading!;
  reading.busy_ratio = 0;
  reading.error = "utilisation can't be read: Not Supported";
  await page.goto(`${base}/jobs/91`);
  await page.getByRole('row', { name: /^gpu-1 / }).getByText('90\u00a0%').waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('after a break the curve of how busy a node is goes on with what it is now', async ({ page, server, base }) => {
  await page.goto(`${base}/nodes`);
  await page.waitForSelector('[data-state=live]');
  for (let i = 0; i < 6; i++) server.live.tick();
  const row = page.locator('.node-row', { hasText: 'gpu-3' });
  await row.locator('.spark').waitFor();
  server.setAway(true);
  await page.getByText('The connection to imgd is lost').waitFor();
  for (const { reading } of server.world.nodes.get('gpu-3')!.devices) reading!.busy_ratio = 0.11;
  server.setAway(false);
  await comeBack(page);
  await row.locator('.row', { has: page.locator('.spark') }).getByText('11\u00a0%').waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('the page of a node follows what runs there and what is decided of that', async ({ page, server, base }) => {
  const runs = [...server.world.jobs.values()].find(
    ({ job }) => job.state === 'JOB_STATE_RUNNING' && job.placements.some((place) => place.node === 'gpu-1'),
  )!;
  await page.goto(`${base}/nodes/gpu-1`);
  await page.waitForSelector('[data-state=live]');
  const run = page.getByRole('region', { name: 'Runs on gpu-1' }).getByRole('row', { name: new RegExp(`^${runs.job.id} `) });
  await run.getByText('runs', { exact: true }).waitFor();
  server.live.change(runs, 'FAILED', 'rank 1: killed by SIGSEGV', 'agent:gpu-1', 'RANK_FAILED');
  await run.getByText('rank 1: killed by SIGSEGV').waitFor();
  await page.getByRole('region', { name: 'Events of gpu-1' }).getByText('rank 1: killed by SIGSEGV').waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('when a node was heard is said of one that is not connected', async ({ page, server, base }) => {
  const facts = page.locator('section[aria-label=gpu-1] dl');
  await page.goto(`${base}/nodes/gpu-1`);
  await facts.getByText(', connected, joined').waitFor();
  const node = server.world.nodes.get('gpu-1')!;
  node.disconnected = true;
  await page.reload();
  await facts.getByText(', heard').waitFor();
  await page.locator('section[aria-label=gpu-1] header').getByText('disconnected').waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('what was wrong with a GPU is not said of it while its node is away', async ({ page, server, base }) => {
  const node = server.world.nodes.get('gpu-1')!;
  for (const { reading } of node.devices) Object.assign(reading!, { xid: 79, throttled_by: 'heat' });
  const cells = page.locator('.node-row', { hasText: 'gpu-1' }).first().locator('.gpu');
  await page.goto(`${base}/nodes`);
  await cells.first().waitFor();
  assert.match((await cells.allTextContents()).join(), /Xid 79, held back by heat/);
  node.disconnected = true;
  await page.reload();
  await cells.first().waitFor();
  assert.doesNotMatch((await cells.allTextContents()).join(), /Xid|heat|fault/);
}, { everyMs: 0 }); // biome-ignore format: one argument

browserTest('a node is opened whose name means something in an address', async ({ page, server, base }) => {
  const { nodes, jobs } = server.world;
  const node = nodes.get('gpu-2')!;
  nodes.delete(node.name);
  node.name = 'rack#2?50%';
  nodes.set(node.name, node);
  jobs.get('91')!.job.placements[1]!.node = node.name;
  const panel = page.getByRole('region', { name: node.name, exact: true });
  for (const from of ['/nodes', '/nodes?view=table', '/jobs/91']) {
    await page.goto(`${base}${from}`);
    await page.getByRole('link', { name: node.name, exact: true }).first().click();
    await panel.waitFor();
    assert.equal(new URL(page.url()).pathname, '/nodes/rack%232%3F50%25');
  }
  await page.reload();
  await panel.getByText(`node ${node.name} has joined`).waitFor();
}, { everyMs: 0 }); // biome-ignore format: one argument
