// What goes on in the canned world: each call of tick() is a second of it.
import type { Decision, Job, ShortState } from '../src/api/types.ts';
import { convert } from './datasets.ts';
import type { Hub } from './hub.ts';
import { addChange, setFigures, stateName, us, type WorldJob } from './jobs.ts';
import { holdDevices, readNodes, type World } from './world.ts';

/** A job as lists and the stream have it. */
export function summaryOf(job: Job): Job {
  return { ...job, job_yaml: '', expected_start_us: '0' };
}

export class Live {
  readonly #world: World;
  readonly #hub: Hub;
  #ticks = 0;
  constructor(world: World, hub: Hub) {
    this.#world = world;
    this.#hub = hub;
  }

  tick(): void {
    this.#ticks += 1;
    const now = Date.now() / 1000;
    for (const one of this.#world.jobs.values()) {
      if (one.job.state === 'JOB_STATE_RUNNING') this.#train(one);
      if (one.job.state === 'JOB_STATE_PREEMPTING') this.#leave(one, now);
    }
    const datasets = convert(this.#world.datasets, now);
    if (datasets.length > 0) this.#hub.send('datasets', { datasets, gone: [] });
    if (this.#ticks % 3 === 0) this.#hub.send('nodes', { nodes: readNodes(this.#world, this.#ticks, now) });
  }

  #train(one: WorldJob): void {
    // As many steps as take a second, whole reports.
    one.step += Math.max(Math.round(1 / one.run.secondsPerStep / 50) * 50, 50);
    if (one.step >= one.run.epochs * one.run.stepsPerEpoch) {
      one.step = one.run.epochs * one.run.stepsPerEpoch;
      setFigures(one);
      this.change(one, 'COMPLETED', 'trained to the last step', 'agent:gpu-1', 'FINISHED');
      holdDevices(this.#world, one, false);
      return;
    }
    const epoch = one.job.last_epoch?.epoch ?? 0;
    setFigures(one);
    const figures = one.job.last_step!;
    this.#hub.send('step', {
      job_id: one.job.id,
      generation: one.job.generation,
      step: figures.step,
      epoch: figures.epoch,
      loss: figures.loss,
      top1: figures.top1,
      images_per_second: figures.images_per_second,
      learning_rate: figures.learning_rate,
      eta_seconds: figures.eta_seconds,
      total_steps: figures.total_steps,
      times: figures.times,
      loader: figures.loader,
      ranks: figures.ranks,
      time_us: us(Date.now() / 1000),
    });
    if (one.job.last_epoch?.epoch !== epoch) this.#hub.send('job', summaryOf(one.job));
  }

  /** The checkpoint is written: the devices are free. */
  #leave(one: WorldJob, now: number): void {
    const paused = one.job.reason === 'REASON_CODE_PAUSED_BY_USER';
    void now;
    holdDevices(this.#world, one, false);
    if (paused) this.change(one, 'PAUSED', one.job.reason_text, 'agent:gpu-1', 'PAUSED_BY_USER');
    else this.change(one, 'QUEUED', 'waits until its nodes are free', 'scheduler', 'WAITS_FOR_DEVICES');
  }

  /** Changes a job's state as a decision, and tells it. */
  change(one: WorldJob, to: ShortState, text: string, actor: string, reason: string): void {
    const from = one.job.state;
    addChange(one, Date.now() / 1000, to, text, actor, reason);
    if (to === 'COMPLETED' || to === 'CANCELLED' || to === 'FAILED') one.job.ended_us = us(Date.now() / 1000);
    this.decide({
      actor,
      reason: `REASON_CODE_${reason}`,
      text,
      job_id: one.job.id,
      generation: one.job.generation,
      from,
      to: stateName(to),
      node: '',
    });
    this.#hub.send('job', summaryOf(one.job));
  }

  /** Deletes a job, as somebody or retention does, and tells it. */
  forget(id: string): void {
    this.#world.jobs.delete(id);
    this.#hub.send('job_gone', { id });
  }

  tell(one: WorldJob): void {
    this.#hub.send('job', summaryOf(one.job));
  }

  decide(what: Omit<Decision, 'number' | 'time_us'>): void {
    this.#world.events += 1;
    const id = this.#world.events;
    const decision = { number: String(id), time_us: us(Date.now() / 1000), ...what };
    this.#world.decisions.push(decision);
    this.#hub.send('event', decision, id);
  }
}
