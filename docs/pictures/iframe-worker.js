// Search in pages that are opened from the disk: browsers start no Worker for file: addresses. This one
// runs the same script in a hidden frame. The theme would fetch such a shim from the network.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      script.src = new URL(url, location.href).href
      this.ready = new Promise(loaded => script.addEventListener("load", loaded))
      inside.document.body.appendChild(script)
      this.inside = inside
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}

// Options are searched for as they are written: the index has no dashes, and two of them are an error to it.
window.Worker = class extends window.Worker {
  postMessage(message) {
    const query = message.data
    super.postMessage(typeof query === "string" ? { ...message, data: query.replace(/(^|\s)--+/g, "$1") } : message)
  }
}
