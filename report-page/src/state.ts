// What is chosen on the page: a network, a class and a joint. Everything that shows it listens.

export interface Chosen {
  row: string | null;
  label: number | null; // a class
  joint: number | null;
}

type Listener = (chosen: Chosen, before: Chosen) => void;

export class State {
  private listeners: Listener[] = [];
  constructor(public chosen: Chosen) {}

  on(listener: Listener): void {
    this.listeners.push(listener);
  }

  set(change: Partial<Chosen>): void {
    const before = this.chosen;
    this.chosen = { ...before, ...change };
    for (const listener of this.listeners) listener(this.chosen, before);
  }
}
