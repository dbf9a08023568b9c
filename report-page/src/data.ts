// What a page is given: src/trellis/report/page.py and src/trellis/training/shrink write it.

export type Pair = [number, number | null]; // a mean, and a deviation over seeds

export interface Row {
  key: string;
  method: string;
  label: string;
  rate: number; // percent removed
  x: number | null;
  kept: Pair | null;
  live: Pair | null; // null where nobody knows
  on: "test" | "validation"; // which recordings were named: all of a method's rows say the same
  top1: Pair | null;
  mean_class: Pair | null;
  train: Pair | null;
  networks: number;
  wanted: number;
  disconnected: number;
  refused: string | null;
  bytes: number | null;
  layers: Record<string, [number, number | null]> | null; // kept, live
}

export interface Method {
  key: string;
  label: string;
  consistent: boolean;
  paper: boolean;
}

export interface Published {
  method: string;
  rate: number;
  x: number | null;
  kept: number | null; // a fraction
  live: number;
  top1: number | null;
}

export interface Skeleton {
  joints: string[];
  bones: [number, number][];
  branches: number[];
  pose: [number, number][]; // right, down; from 0 to 1
}

// Lines end with: level 0 to 99, branch, joint set, class set.
export interface Paths {
  mode: "paths";
  filters: number; // of each head
  summed: boolean; // whether heads are added, so that all give the same filters
  attentions: number[][][]; // of each block: head, joint it is for, joint it comes from
  convolutions: number[][][]; // of each block: head, channel, filter
  dense: number[][]; // head, filter, joint, class
  joint_sets: string[];
  class_sets: string[];
}

export interface Quantised {
  shape: number[];
  largest: number;
  bytes: string;
}

export interface BundledBlock {
  flow: Quantised; // classes, joints, heads
  filters: number[]; // of each head
  of_class?: Quantised; // classes, heads before, heads; not of the first block
  of_joint?: Quantised; // joints, heads before, heads
}

export interface Bundles {
  mode: "bundles";
  blocks: BundledBlock[];
}

export interface Network {
  drawing: Paths | Bundles;
  joints: number[][]; // of each class, in ten-thousandths
  chunks: number[][];
  waves: number[][] | null; // where the network sees joints as waves
  multiplications: number;
}

export interface Moving {
  name: string;
  length: number;
  frames: number;
  bytes: string;
  said: number;
}

export interface Report {
  kind: "report";
  title: string;
  source: string;
  synthetic: boolean;
  warnings: string[];
  facts: [string, string][];
  notes: string[];
  missing: { what: string; how: string }[];
  command: string;
  axis: "kept" | "x";
  rows: Row[];
  methods: Method[];
  published: Published[];
  layers: Record<string, number>;
  chosen: string | null;
  rule: string;
  of_network: string;
  networks: Record<string, Network>;
  dense_multiplications: number;
  confusions: Record<string, number[]>;
  examples: {
    row: string;
    grid: number;
    classes: Record<string, { right: Moving | null; wrong: Moving | null }>;
  } | null;
  chunks: number;
  basis: "chunks" | "cosines"; // whether a network sees moments, or waves over all of them
  moments: number[]; // the chunk, or the wave, of each three channels
  classes: string[] | null;
  skeleton: Skeleton | null;
  nested: { keys: string[]; asked: string[] } | null; // rows of nested networks, largest first
}

export interface AuditLayer {
  name: string;
  shape: number[];
  total: number;
  kept: number;
  accessible: number;
  coaccessible: number;
  live: number;
  dead: number;
}

export interface HistoryRow {
  step: number;
  phase: string;
  loss: number;
  kept: number;
  score: number | null;
}

export interface NestedRate {
  kept: number;
  total: number;
  score: number | null;
  asked: boolean;
  bytes: number;
}

export interface Audited {
  kind: "audit";
  title: string;
  target: string;
  total: number;
  kept: number;
  live: number;
  dead: number;
  outputs: number;
  outputs_reached: number;
  layers: AuditLayer[];
  words: string[];
  facts: [string, string][];
  history?: HistoryRow[]; // of a network that trellis.shrink made
  rates?: NestedRate[]; // of nested ones, largest first
}
