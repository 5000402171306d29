/* The search of these pages runs in a Worker. A browser starts none for a page that was opened from disk, so there, and only
   there, a hidden frame of the same page stands in for it: it loads the worker's script, and messages are handed over as events. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #loaded;

    constructor(address) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inside = this.#frame.contentWindow;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      this.#loaded = new Promise(done => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, location.href).href;
        script.addEventListener("load", () => done(inside));
        inside.document.body.append(script);
      });
    }

    postMessage(data) {
      this.#loaded.then(inside => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
