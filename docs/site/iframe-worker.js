// Browsers refuse workers on pages of the file system. There the search of the site runs in a hidden
// frame instead, which has its own global scope too: the name `iframe-worker` tells the plugin
// `offline` of mkdocs-material that no other replacement is needed.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.loaded = new Promise((resolve, reject) => {
        const script = this.scope.document.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`cannot load ${url}`));
        this.scope.document.documentElement.append(script);
      });
    }

    // Messages sent before the script has run wait for it.
    postMessage(data) {
      this.loaded.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.scope.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
